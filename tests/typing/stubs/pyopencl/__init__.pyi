# As much of pyopencl as the scenarios use.

class Context:
    @property
    def int_ptr(self) -> int: ...

class CommandQueue:
    @property
    def context(self) -> Context: ...
    @property
    def int_ptr(self) -> int: ...
