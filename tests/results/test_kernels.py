"""Kernel names: short and unique; the shares of kernels in a call."""

import math
import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_gpubench import Kernel, Timing
from pytest_gpubench.results.kernels import breakdown, distinct_names, is_copy, is_fill
from tests.results.measured import kernel, timing_of

NATIVE = "at::native::"
ANONYMOUS = "at::native::(anonymous namespace)::"
ITERATOR = "at::TensorIteratorBase&"
LAMBDAS = "::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}"
COPIED = f"at::native::direct_copy_kernel_cuda({ITERATOR}){LAMBDAS}"
ARRAY2 = "std::array<char*, 2ul>"

NAMES = [
    # torch: one element at a time
    (
        f"void {NATIVE}vectorized_elementwise_kernel<(int)4, {NATIVE}BinaryFunctor<c10::BFloat16, c10::BFloat16, "
        f"c10::BFloat16, {NATIVE}binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)3>>"
        "(int, T2, T3)",
        "vectorized_elementwise_kernel<MulFunctor>",
    ),
    (
        f"void {NATIVE}elementwise_kernel<128, 2, {NATIVE}gpu_kernel_impl_nocast<{NATIVE}AUnaryFunctor<float, float, "
        f"float, {NATIVE}binary_internal::MulFunctor<float> > >({ITERATOR}, {NATIVE}AUnaryFunctor<float, float, float, "
        f"{NATIVE}binary_internal::MulFunctor<float> > const&)::{{lambda(int)#1}}>(int, float)",
        "elementwise_kernel<MulFunctor>",
    ),
    (
        f"void {NATIVE}index_elementwise_kernel<128, 4, {NATIVE}gpu_index_kernel<{NATIVE}index_kernel_impl<"
        f"{NATIVE}OpaqueType<4> >({ITERATOR}, c10::ArrayRef<long>, c10::ArrayRef<long>)::{{lambda(char*, char const*, "
        f"long)#1}}>({ITERATOR})::{{lambda(int)#1}}>(long)",
        "index_elementwise_kernel<index_kernel_impl>",
    ),
    ("void at::native::vectorized_elementwise_kernel<4, at::nati...", "vectorized_elementwise_kernel"),
    # torch: copies and fills
    (
        f"void {NATIVE}vectorized_elementwise_kernel<(int)8, {NATIVE}bfloat16_copy_kernel_cuda(at::TensorIteratorBase "
        "&)::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)",
        "vectorized_elementwise_kernel<bfloat16_copy_kernel_cuda>",
    ),
    (
        f"void {NATIVE}unrolled_elementwise_kernel<{COPIED}, {ARRAY2}, 4, TrivialOffsetCalculator<1, unsigned int>, "
        f"TrivialOffsetCalculator<1, unsigned int>, {NATIVE}memory::LoadWithCast<1>, {NATIVE}memory::StoreWithCast<1> >"
        "(int)",
        "unrolled_elementwise_kernel<direct_copy_kernel_cuda>",
    ),
    (
        f"void {NATIVE}vectorized_elementwise_kernel<4, {NATIVE}FillFunctor<float>, std::array<char*, 1ul> >"
        f"(int, {NATIVE}FillFunctor<float>, std::array<char*, 1ul>)",
        "vectorized_elementwise_kernel<FillFunctor>",
    ),
    (
        f"void {ANONYMOUS}CatArrayBatchedCopy_vectorized<{ANONYMOUS}OpaqueType<4u>, unsigned int, 3, 128, 1, 16, 4>"
        f"(char*, {ANONYMOUS}CatArrInputTensorMetadata<{ANONYMOUS}OpaqueType<4u>, unsigned int, 128, 1>)",
        "CatArrayBatchedCopy_vectorized",
    ),
    # torch: reductions
    (
        f"void {NATIVE}reduce_kernel<512, 1, {NATIVE}ReduceOp<float, {NATIVE}func_wrapper_t<float, {NATIVE}sum_functor"
        "<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4, 4> "
        f">({NATIVE}ReduceOp<float>)",
        "reduce_kernel<sum_functor>",
    ),
    (
        f"void {NATIVE}<unnamed>::cunn_SoftMaxForwardSmem<(int)8, c10::BFloat16, float, c10::BFloat16, {NATIVE}"
        "<unnamed>::SoftMaxForwardEpilogue, long>(T4 *, const T2 *, T6)",
        "cunn_SoftMaxForwardSmem<SoftMaxForwardEpilogue>",
    ),
    # matrix products
    ("nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NTN", "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NTN"),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__"
        "5x_cublas",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_...xecute_segment_k_off_kernel__5x_cublas",
    ),
    (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_256x64_32x4_nhwc_align8>(X)",
        "cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_256x64_32x4_nhwc_align8>",
    ),
    (
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float, false, "
        "true, true, false, 6, false, cublasGemvParamsEx<int, float> >(cublasGemvParamsEx<int, float>)",
        "gemvx::kernel",
    ),
    ("matmul_kernel", "matmul_kernel"),
    # attention
    (
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::"
        "CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1> >, 128>, X> > >(X::Params)",
        "device_kernel<FlashAttnFwdSm90>",
    ),
    ("cudnn_generated_fort_native_sdpa_sm90_" + "f" * 60, "cudnn_generated_fort_native_sdpa_sm90_" + "f" * 60),
    ("void flashinfer::BatchPrefill<flashinfer::KernelTraits<(int)1> >(X)", "BatchPrefill"),
    # communication
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_SendRecv"),
    # torch.compile
    ("triton_poi_fused_clone_3", "triton_poi_fused_clone_3"),
    ("triton_poi_fused__to_copy_1", "triton_poi_fused__to_copy_1"),
    ("triton_poi_fused_clone_mul_0", "triton_poi_fused_clone_mul_0"),
    # mangled
    ("_Z6kernelIiEvv", "_Z6kernelIiEvv"),
    ("_Z", "_Z"),
    # of whatever sort
    ("void at::native::radixSortKVInPlace<2, -1, 32, 4, float, long, unsigned int>(X)", "radixSortKVInPlace"),
    ("", ""),
]


def short_name(name: str) -> str:
    return distinct_names([name])[name]


@pytest.mark.parametrize(("name", "short"), NAMES, ids=[row[1] or "empty" for row in NAMES])
def test_names_of_real_kernels(name: str, short: str) -> None:
    """A library's own spelling is cut in its middle where it is long."""
    expected = short if len(short) <= 80 else f"{short[:39]}...{short[-38:]}"
    assert short_name(name) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy DtoD (Device -> Device)", "memcpy"),
        ("Memcpy DtoH (Device -> Pageable)", "memcpy"),
        ("Memset (Device)", "memset"),
    ],
)
def test_copies_and_memsets_stay_as_they_are(name: str, kind: str) -> None:
    assert short_name(name) == name
    assert (is_copy(name, kind), is_fill(name, kind)) == (kind == "memcpy", kind == "memset")


def test_which_kernels_are_certainly_copies() -> None:
    """Concatenation is more than a copy."""
    found = {row[1] for row in NAMES if is_copy(row[0])}
    assert found == {
        "unrolled_elementwise_kernel<direct_copy_kernel_cuda>",
        "vectorized_elementwise_kernel<bfloat16_copy_kernel_cuda>",
        "triton_poi_fused_clone_3",
        "triton_poi_fused__to_copy_1",
    }
    assert {row[1] for row in NAMES if is_fill(row[0])} == {"vectorized_elementwise_kernel<FillFunctor>"}


@given(st.text(alphabet="ab_:<>(){}[], 12*&Z-N"))
@example("operator<")
@example("a<b<c(")
@example("void ")
@example("::")
@example("_ZN99a")
def test_no_name_is_too_strange(name: str) -> None:
    """Whatever a kernel is called, it has a short name."""
    assert bool(short_name(name)) == bool(name) or not re.search(r"\w", name)


def test_names_that_clash_keep_what_tells_them_apart() -> None:
    add = (
        "void at::native::vectorized_elementwise_kernel<{}, at::native::CUDAFunctor_add<{}>, std::array<char*, 3ul> >()"
    )
    first, second, third = add.format(4, "float"), add.format(8, "c10::BFloat16"), add.format(8, "c10::Half")
    assert distinct_names([first, second]) == {
        first: "vectorized_elementwise_kernel<4, CUDAFunctor_add>",
        second: "vectorized_elementwise_kernel<8, CUDAFunctor_add>",
    }
    assert distinct_names([first, second, third]) == {
        first: "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
        second: "vectorized_elementwise_kernel<8, CUDAFunctor_add<BFloat16>>",
        third: "vectorized_elementwise_kernel<8, CUDAFunctor_add<Half>>",
    }
    for names in (
        {"f(int)": "f(int)", "f(float)": "f(float)", "g(int)": "g"},
        {"f<1, 2>()": "f<1, 2>()", "f<1>()": "f<1>()", "g<1>()": "g"},
        {"a::f<1>()": "a::f<1>()", "b::f<1>()": "b::f<1>()", "f<2>()": "f<2>()"},
    ):
        assert distinct_names(names) == names


@given(st.lists(st.sampled_from(["f", "a::f", "f<1>", "f<2>", "f<1, 2>", "f<g<1>>", "f<g<2>>", "h<g<1>>(int)"])))
def test_no_two_kernels_have_one_name(names: list[str]) -> None:
    assert len(set(distinct_names(names).values())) == len(set(names))


# their times


def timing(label: str, *kernels: Kernel) -> Timing:
    return timing_of((9.0,), label, kernels=kernels)


MIXED = timing("block", kernel("a", 2, 6.0), kernel("copy", 1, 1.0, "memcpy"), kernel("b", 1, 2.0), kernel("c", 1, 1.0))


def test_breakdown_is_by_kernel_the_longest_first() -> None:
    found = [(share.name, share.launches, share.median_us, share.share) for share in breakdown(MIXED, 4)]
    assert found == [("a", 2, 6.0, 0.6), ("b", 1, 2.0, 0.2), ("copy", 1, 1.0, 0.1), ("c", 1, 1.0, 0.1)]


def test_shares_are_of_the_means_where_every_kernel_has_one() -> None:
    kept = [msgspec.structs.replace(each, mean_us=mean) for each, mean in zip(MIXED.kernels, (4, 3, 2, 1), strict=True)]
    assert [share.share for share in breakdown(timing("kept", *kept), 4)] == [0.4, 0.3, 0.2, 0.1]
    assert [share.mean_us for share in breakdown(timing("kept", *kept), 2)] == [4, 6]
    some = timing("some", *kept[:3], MIXED.kernels[3])
    assert [share.share for share in breakdown(some, 4)] == [share.share for share in breakdown(MIXED, 4)]
    assert [share.mean_us for share in breakdown(some, 2)] == [4, None]
    assert breakdown(timing("none"), 1) == ()


@pytest.mark.parametrize(("most", "names"), [(4, "abcd"), (3, "ab+"), (2, "a+"), (1, "+")])
def test_the_shortest_of_many_are_one(most: int, names: str) -> None:
    found = breakdown(timing("many", *(kernel(name, 1, 8.0 - at) for at, name in enumerate("abcd"))), most)
    assert "".join(each.name if each.kernels == 1 else "+" for each in found) == names
    assert sum(each.kernels for each in found) == sum(each.launches for each in found) == 4
    assert math.isclose(sum(each.share for each in found), 1)
    assert found[-1].name in ("d", f"{5 - most} more")
