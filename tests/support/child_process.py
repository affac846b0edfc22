"""Code for scripts that fork: the child opens a device while the parent has one open."""

OPEN_IN_CHILD = """
def use_own_device(open, use, on_gpu):
    try:
        own = open()
    except gx.NoDeviceError as error:  # some drivers refuse a child of a process with a device
        assert on_gpu and "fork()" in str(error) and "spawn" in str(error), error
        return
    with own:
        use(own)
"""
