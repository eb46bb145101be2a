"""The code of Triton's kernels: PTX as Triton writes it, and kernels as its versions describe them."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench.replay.triton_code import code_of, codes_of, constants_of, noting_compiled
from pytest_gpubench.results.model import Code

WIDE = """
    ld.param.b64 	%rd5, [strided_kernel_param_0];
    @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    @%p2 ld.global.L1::evict_first.v4.b32 { %r5, %r6, %r7, %r8 }, [ %rd2 + 0 ];
    st.shared.b32 	[%r62], %r58;
    @%p1 st.global.v2.b32 [ %rd3 + 0 ], { %r9, %r10 };
"""
NARROW = """
    @%p1 ld.volatile.global.b32 { %r1 }, [ %rd1 + 0 ];
    @%p2 ld.global.u16 { %rs1 }, [ %rd2 + 0 ];
    @%p3 ld.global.nc.f32 %f1, [%rd3];
    @%p9 atom.global.gpu.acq_rel.add.f32 %r9, [ %rd9 + 0 ], %r10;
    @%p9 red.global.gpu.relaxed.add.f32 [ %rd9 + 0 ], %r10;
    atom.shared.add.u32 %r1, [%r2], %r3;
    @%p1 st.global.b8 [ %rd10 + 0 ], { %rs2 };
"""
ASYNCHRONOUS = "cp.async.cg.shared.global [ %r188 + 0 ], [ %rd24 + 0 ], 0x10, %r189;\ncp.async.commit_group;"
DIRECTIVES = """
.version 8.7
.visible .entry add_kernel(.param .u64 .ptr .global .align 1 add_kernel_param_0) .reqntid 128
{
	.reg .b32 	%r<3>;
$L__BB0_1:
	.loc	1 8 24                          // kernels.py:8:24
	mov.u32 %r1, %ctaid.x;
	// begin inline asm
	@!%p1 add.f32 	%r2, %r1, 0f3F000000;
	call.uni (retval0),
	__nv_sinf,
	(param0);
	ret;
}
	.section	.debug_abbrev
"""
METADATA = SimpleNamespace(num_warps=8, num_stages=3, num_ctas=1, maxnreg=None)
OPTIONS = {"num_warps": "8", "num_stages": "3", "num_ctas": "1"}


class DType:
    """Stands for one of Triton's types, whose text has no address."""

    __module__ = "triton.language.core"

    def __str__(self) -> str:
        return "fp16"


def source(constants: dict[Any, Any]) -> Any:
    return SimpleNamespace(constants=constants, fn=SimpleNamespace(arg_names=["x", "across", "BLOCK", "KIND", "ACT"]))


def compiled(ptx: str = WIDE, function: Any = 7, **others: Any) -> Any:
    known = {"asm": {"ptx": ptx}, "function": function, "src": source({}), "metadata": METADATA}
    return SimpleNamespace(**{**known, **others})


@pytest.mark.parametrize(
    ("ptx", "expected"),
    [
        (WIDE, Code(constants=OPTIONS, loads=2, load_bytes=16, stores=1, store_bytes=8, instructions=5)),
        (NARROW, Code(constants=OPTIONS, loads=3, load_bytes=4, stores=1, store_bytes=1, atomics=2, instructions=7)),
        (ASYNCHRONOUS, Code(constants=OPTIONS, loads=1, load_bytes=16, instructions=2)),
        ("ret;", Code(constants=OPTIONS, instructions=1)),
        (DIRECTIVES, Code(constants=OPTIONS, instructions=4)),
    ],
)
def test_accesses_to_global_memory_are_counted(ptx: str, expected: Code) -> None:
    assert code_of(compiled(ptx)) == expected


@pytest.mark.parametrize(
    ("constants", "expected"),
    [
        (
            {(1,): 1, (2,): 1024, (3,): DType(), (4,): len},
            {"across": "1", "BLOCK": "1024", "KIND": "fp16", "ACT": "len"},
        ),
        ({1: None, "BLOCK": True}, {"across": "None", "BLOCK": "True"}),
        ({(0, 1): 16}, {"x[1]": "16"}),
        ({(4,): object()}, {"ACT": "object"}),
    ],
)
def test_constants_have_the_names_of_arguments_and_no_address(
    constants: dict[Any, Any], expected: dict[str, str]
) -> None:
    assert constants_of(source(constants)) == expected


def test_a_kernel_that_cannot_be_read_has_no_code() -> None:
    """As that of another version of Triton's, or one that was never loaded."""
    read = compiled()
    assert [*codes_of([compiled(function=None), compiled(function=8, asm={}), read, read])] == [7]


def test_kernels_are_noted_while_they_are_launched_and_launched_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class CompiledKernel:
        def launch_metadata(self, grid: object, stream: object, *args: object) -> object:
            return grid, stream, args

    asked = CompiledKernel.launch_metadata
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", SimpleNamespace(CompiledKernel=CompiledKernel))
    noted, kernel = list[Any](), CompiledKernel()
    with noting_compiled(noted):
        assert kernel.launch_metadata((1, 1, 1), 5, "x") == ((1, 1, 1), 5, ("x",))
    assert noted == [kernel]
    assert CompiledKernel.launch_metadata is asked


def test_without_triton_nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "triton.compiler.compiler", raising=False)
    with noting_compiled([]):
        pass
