"""For scripts that fork: a device of the child's own, beside the one that the parent has open."""

OPEN_IN_CHILD = """
def use_its_own(open, use, on_gpu):
    try:
        own = open()
    except gx.NoDeviceError as error:  # some drivers allow no second one, others do
        assert on_gpu and "fork()" in str(error) and "spawn" in str(error), error
        return
    with own:
        use(own)
"""
