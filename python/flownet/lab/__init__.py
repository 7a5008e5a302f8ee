"""The laboratory: flow control at work, in real workers and over real sockets, beside other ways of controlling it.

``flownet lab SCENARIO`` runs one scenario under each control. Who reads this first: `scenario` says what a scenario is,
`overflow` is one, `experiment` runs it, `pace` and `parts` are what it is built of.
"""
