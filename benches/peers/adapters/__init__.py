"""The peers, in the order of the table; one module each."""

from adapters import bare, bytewax, flight, flink, flink_network, flownet, pathway, pyflink, zmq
from interface import Peer

PEERS: tuple[Peer, ...] = (
    flownet.PEER,
    bare.PEER,
    flink.PEER,
    flink_network.PEER,
    pyflink.PEER,
    bytewax.PEER,
    pathway.PEER,
    zmq.PEER,
    flight.PEER,
)
