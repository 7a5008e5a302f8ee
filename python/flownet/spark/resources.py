"""What Spark sets aside for each worker: CPUs of its executor, and resources such as GPUs.

A stage takes them by a resource profile with requests of tasks alone. Executors stay as they were started, so Spark
needs no dynamic allocation for it, which barrier stages rule out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession

from ..errors import ConfigError, LaunchError
from ..internal import config
from .session import is_connect, is_local


class TaskResources(NamedTuple):
    """What each worker takes of its executor."""

    cpus: int | None
    """CPUs, or None for ``spark.task.cpus`` of the application."""
    amounts: Mapping[str, int]
    """How many of each other resource, by its name in Spark."""

    @classmethod
    def checked(cls, cpus: int | None, amounts: Mapping[str, int] | None) -> TaskResources:
        """Check what a user gave.

        Raises
        ------
        ConfigError
            A number does not fit, or a name is none of a resource.
        """
        if cpus is not None:
            config.whole_number("cpus", cpus, 1, _MOST)
        if amounts is None:
            return cls(cpus, {})
        if not isinstance(amounts, Mapping):
            raise _refuse(amounts, "must be a mapping of names to numbers, such as {'gpu': 1}")
        for name, amount in amounts.items():
            config.text("resources", name)
            if name in _NAMES_OF_CPUS:
                raise _refuse(amounts, f"has {name!r}: give cpus= for these")
            config.whole_number(f"resources[{name!r}]", amount, 1, _MOST)
        return cls(cpus, MappingProxyType(dict(amounts)))

    def __str__(self) -> str:
        cpus = [] if self.cpus is None else [f"{self.cpus} CPU{'s' if self.cpus > 1 else ''}"]
        return " and ".join([*cpus, *(f"{amount} {name}" for name, amount in self.amounts.items())])

    def profile(self, spark: SparkSession) -> ResourceProfile | None:
        """Make what Spark takes, or None where its defaults do.

        Raises
        ------
        LaunchError
            This Spark sets nothing aside for single stages, or its executors have none of it.
        """
        if self.cpus is None and not self.amounts:
            return None
        if is_local(spark):
            raise LaunchError(
                f"each worker is to have {self}, and {spark.sparkContext.master} sets nothing aside for single stages: "
                "leave out cpus= and resources=, start Spark with spark.task.cpus, or take a cluster"
            )
        # A profile that does not say has one.
        cpus = self.cpus or int(str(spark.conf.get("spark.task.cpus", "1")))
        requests = TaskResourceRequests().cpus(cpus)
        for name, amount in self.amounts.items():
            requests = requests.resource(name, amount)
        profile = ResourceProfileBuilder().require(requests).build
        if not is_connect(spark):
            self._admit(spark, profile)
        return profile

    def _admit(self, spark: SparkSession, profile: ResourceProfile) -> None:
        """Let the scheduler know the profile, so that slots can be counted by it."""
        settings = spark.sparkContext.getConf()
        for name, amount in self.amounts.items():
            has = str(settings.get(f"spark.executor.resource.{name}.amount", "0"))
            if int(has) < amount:
                raise LaunchError(
                    f"each worker is to have {self}, and each executor has {has} {name}: start the application with "
                    f"spark.executor.resource.{name}.amount and spark.executor.resource.{name}.discoveryScript"
                )
        context: Any = spark.sparkContext._jsc
        java: Any = profile._java_resource_profile
        try:
            context.sc().resourceProfileManager().addResourceProfile(java)
        except Exception as error:
            raise LaunchError(f"Spark does not give each worker {self}: {error}") from error


def _refuse(amounts: object, why: str) -> ConfigError:
    return ConfigError(f"resources={amounts!r} {why}", setting="resources", value=amounts)


AS_BY_DEFAULT: Final = TaskResources(None, {})
"""What the application gives each task."""
_MOST = 1024
_NAMES_OF_CPUS = ("cpus", "cpu", "cores")
