# Generated from the registry in rust/flownet-rows/src/expr/functions by `make functions`. Do not edit.
"""Functions of numbers and of any values."""

from __future__ import annotations

from typing import Any

from ..calls import Calls, E, check_bounds


class ValueFunctions(Calls[E]):
    """Functions of numbers and of any values."""

    __slots__ = ()

    def abs(self) -> E:
        """Return the absolute value.

        The least integer of a signed type has none, which is an error.

        Example: ``fn.lit(-3).abs()`` is ``3``.
        """
        return self._call("abs")

    def floor(self) -> E:
        """Round down to a whole number of the same type.

        Example: ``fn.lit(-2.5).floor()`` is ``-3.0``.
        """
        return self._call("floor")

    def ceil(self) -> E:
        """Round up to a whole number of the same type.

        Example: ``fn.lit(2.1).ceil()`` is ``3.0``.
        """
        return self._call("ceil")

    def trunc(self) -> E:
        """Round towards zero to a whole number of the same type.

        Example: ``fn.lit(-2.5).trunc()`` is ``-2.0``.
        """
        return self._call("trunc")

    def round(self, decimals: int = 0) -> E:
        """Round to a number of decimals, 0 to 15.

        Halves are rounded to the even neighbour.

        Example: ``fn.lit(2.5).round()`` is ``2.0``.
        """
        check_bounds(f"round({decimals!r})", decimals, 0, 15, "a float has 0 to 15 decimals")
        return self._call("round", decimals)

    def sign(self) -> E:
        """Return -1, 0 or 1, of the same type.

        NaN stays NaN, and -0.0 stays -0.0.

        Example: ``fn.lit(-7).sign()`` is ``-1``.
        """
        return self._call("sign")

    def sqrt(self) -> E:
        """Return the square root.

        It is NaN for negative numbers.

        The result is a ``float64``.

        Example: ``fn.lit(2.25).sqrt()`` is ``1.5``.
        """
        return self._call("sqrt")

    def cbrt(self) -> E:
        """Return the cube root.

        The result is a ``float64``.

        Example: ``fn.lit(-8).cbrt()`` is ``-2.0``.
        """
        return self._call("cbrt")

    def exp(self) -> E:
        """Return e to the power of the number.

        The result is a ``float64``.

        Example: ``fn.lit(0).exp()`` is ``1.0``.
        """
        return self._call("exp")

    def ln(self) -> E:
        """Return the natural logarithm.

        It is -inf for zero, and NaN for negative numbers.

        The result is a ``float64``.

        Example: ``fn.lit(1).ln()`` is ``0.0``.
        """
        return self._call("ln")

    def log(self, base: float | E | None) -> E:
        """Return the logarithm to a base.

        It is a quotient of two natural logarithms, rounded like one.

        The result is a ``float64``.

        Example: ``fn.lit(9).log(3)`` is ``2.0``.
        """
        return self._call("log", base)

    def log2(self) -> E:
        """Return the logarithm to base 2.

        It is -inf for zero, and NaN for negative numbers.

        The result is a ``float64``.

        Example: ``fn.lit(8).log2()`` is ``3.0``.
        """
        return self._call("log2")

    def log10(self) -> E:
        """Return the logarithm to base 10.

        It is -inf for zero, and NaN for negative numbers.

        The result is a ``float64``.

        Example: ``fn.lit(1000).log10()`` is ``3.0``.
        """
        return self._call("log10")

    def log1p(self) -> E:
        """Return the natural logarithm of one plus the number.

        It is exact for small numbers.

        The result is a ``float64``.

        Example: ``fn.lit(0).log1p()`` is ``0.0``.
        """
        return self._call("log1p")

    def sin(self) -> E:
        """Return the sine of an angle in radians.

        The result is a ``float64``.

        Example: ``fn.lit(0).sin()`` is ``0.0``.
        """
        return self._call("sin")

    def cos(self) -> E:
        """Return the cosine of an angle in radians.

        The result is a ``float64``.

        Example: ``fn.lit(0).cos()`` is ``1.0``.
        """
        return self._call("cos")

    def tan(self) -> E:
        """Return the tangent of an angle in radians.

        The result is a ``float64``.

        Example: ``fn.lit(0).tan()`` is ``0.0``.
        """
        return self._call("tan")

    def asin(self) -> E:
        """Return the arc sine in radians.

        It is NaN outside -1 to 1.

        The result is a ``float64``.

        Example: ``fn.lit(0).asin()`` is ``0.0``.
        """
        return self._call("asin")

    def acos(self) -> E:
        """Return the arc cosine in radians.

        It is NaN outside -1 to 1.

        The result is a ``float64``.

        Example: ``fn.lit(1).acos()`` is ``0.0``.
        """
        return self._call("acos")

    def atan(self) -> E:
        """Return the arc tangent in radians.

        The result is a ``float64``.

        Example: ``fn.lit(0).atan()`` is ``0.0``.
        """
        return self._call("atan")

    def atan2(self, x: float | E | None) -> E:
        """Return the angle of the point (x, y) in radians.

        The column is y.

        The result is a ``float64``.

        Example: ``fn.lit(0).atan2(1)`` is ``0.0``.
        """
        return self._call("atan2", x)

    def sinh(self) -> E:
        """Return the hyperbolic sine.

        The result is a ``float64``.

        Example: ``fn.lit(0).sinh()`` is ``0.0``.
        """
        return self._call("sinh")

    def cosh(self) -> E:
        """Return the hyperbolic cosine.

        The result is a ``float64``.

        Example: ``fn.lit(0).cosh()`` is ``1.0``.
        """
        return self._call("cosh")

    def tanh(self) -> E:
        """Return the hyperbolic tangent.

        The result is a ``float64``.

        Example: ``fn.lit(0).tanh()`` is ``0.0``.
        """
        return self._call("tanh")

    def degrees(self) -> E:
        """Convert radians to degrees.

        The result is a ``float64``.

        Example: ``fn.lit(0).degrees()`` is ``0.0``.
        """
        return self._call("degrees")

    def radians(self) -> E:
        """Convert degrees to radians.

        The result is a ``float64``.

        Example: ``fn.lit(180).radians()`` is ``3.141592653589793``.
        """
        return self._call("radians")

    def bitwise_and(self, other: int | E | None) -> E:
        """Combine the bits of two integers by and.

        Example: ``fn.lit(12).bitwise_and(10)`` is ``8``.
        """
        return self._call("bitwise_and", other)

    def bitwise_or(self, other: int | E | None) -> E:
        """Combine the bits of two integers by or.

        Example: ``fn.lit(12).bitwise_or(10)`` is ``14``.
        """
        return self._call("bitwise_or", other)

    def bitwise_xor(self, other: int | E | None) -> E:
        """Combine the bits of two integers by exclusive or.

        Example: ``fn.lit(12).bitwise_xor(10)`` is ``6``.
        """
        return self._call("bitwise_xor", other)

    def bitwise_not(self) -> E:
        """Invert the bits of an integer.

        Example: ``fn.lit(5).bitwise_not()`` is ``-6``.
        """
        return self._call("bitwise_not")

    def bitwise_shift_left(self, bits: int | E | None) -> E:
        """Multiply by 2 as often as ``bits`` says.

        A result that does not fit is an error, and so is a negative number of bits.

        Example: ``fn.lit(3).bitwise_shift_left(4)`` is ``48``.
        """
        return self._call("bitwise_shift_left", bits)

    def bitwise_shift_right(self, bits: int | E | None) -> E:
        """Divide by 2 as often as ``bits`` says.

        Results are rounded down; a negative number of bits is an error.

        Example: ``fn.lit(-5).bitwise_shift_right(1)`` is ``-3``.
        """
        return self._call("bitwise_shift_right", bits)

    def bitwise_count_ones(self) -> E:
        """Count the bits that are set.

        Negative integers are counted in two's complement.

        The result is an ``int64``.

        Example: ``fn.lit(7).bitwise_count_ones()`` is ``3``.
        """
        return self._call("bitwise_count_ones")

    def nullif(self, other: Any) -> E:
        """Return null if the value equals another one.

        Example: ``fn.lit(0).nullif(0)`` is ``None``.
        """
        return self._call("nullif", other)

    def chr(self) -> E:
        """Return the character of a code point.

        A number that has none is an error.

        The result is a ``utf8``.

        Example: ``fn.lit(65).chr()`` is ``'A'``.
        """
        return self._call("chr")
