"""Graphs with the batch axis written beside them first, and how often the search agrees: python -m tests.bi_axis_table

An answer reads "0*4,- -> 0*4i [2]": the first input holds 2 rows along dim 0, 4 indices a row; the second is shared;
the output holds them along dim 0, 4 a row, inner order (index = j * rows + row). "fixed" at the end: not resizable.
"none: words" is no axis, with words of the reason. Not a test: tests/test_bi_axis.py runs every line.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from data.graph import Graph
from eval_harness.batch_invariance.batch_axis import find_batch_layout
from eval_harness.batch_invariance.row_axis import BatchLayout, NotApplicable, RowAxis


@dataclass(frozen=True)
class Case:
    """One graph and its answer. specs: argument -> "2,64 float32", "4,16 int64 0-9", or with a name in the model."""

    name: str
    body: str
    answer: str
    specs: dict[str, str]

    @property
    def graph(self) -> Graph:
        lines = [line.strip() for line in self.body.strip().splitlines()]
        source = "import torch\nfrom torch import device\n\n\nclass GraphModule(torch.nn.Module):\n"
        source += f"    def forward(self, {', '.join(self.specs)}):\n" + "".join(f"        {line}\n" for line in lines)
        metas = "\n".join(_meta(name, text) for name, text in self.specs.items())
        return Graph(self.name, {"model.py": source, "weight_meta.py": metas, "graph_net.json": "{}"})


def _meta(name: str, text: str) -> str:
    shape, *rest = text.split(" ")
    dtype = next((part for part in rest if not part[0].isdigit() and part[0] != "l"), "float32")
    bounds = next((part for part in rest if part[0].isdigit()), "")
    original = next((part for part in rest if part[0] == "l"), "")
    lines = [f"name = {name!r}", f"shape = [{shape}]", f'dtype = "torch.{dtype}"', 'device = "cpu"']
    lines += [f"original_name = {original!r}"] if original else []
    if bounds:
        low, high = bounds.split("-")
        lines += ["mean = None", "std = None", f"min_val = {low}", f"max_val = {high}"]
    else:
        lines += ["mean = 0.0", "std = 1.0"]
    return f"class Program_weight_tensor_meta_{name}:\n" + "".join(f"\t{line}\n" for line in lines)


def case(name: str, answer: str, body: str, **specs: str) -> Case:
    return Case(name, body, answer, specs)


F = "torch.nn.functional"
ATTENTION = "torch.softmax(torch.bmm(in_0, in_1.transpose(1, 2)), -1)"
CASES = (
    case("pointwise", "0,0 -> 0 [6]", "return (torch.relu(in_0 * in_1),)", in_0="6,10", in_1="6,10"),
    case("bias", "0,- -> 0 [6]", "return (in_0 + in_1,)", in_0="6,10", in_1="10"),
    case("bias_first_of_the_batch_s_size", "-,0 -> 0 [8]", "return (in_1 + in_0,)", in_0="8", in_1="8,8"),
    case("layer_norm", "-,-,0,0 -> 0,0 [4]",
         f"a = in_2 + in_3\nreturn (a, {F}.layer_norm(a, (10,), in_1, in_0, 1e-05))",
         in_0="10", in_1="10", in_2="4,5,10", in_3="4,5,10"),
    case("rms_norm_in_half", "-,0 -> 0 [2]",
         "a = in_1.to(torch.float32)\nb = a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-06)\n"
         "return (in_0 * b.to(torch.float16),)", in_0="16 float16", in_1="2,6,16 float16"),
    case("linear", "-,-,0 -> 0 [3]", f"return ({F}.linear(in_2, in_1, in_0),)", in_0="8", in_1="8,5", in_2="3,5"),
    case("square_weight", "0,- -> 0 [8]", "return (in_0 @ in_1,)", in_0="8,8", in_1="8,8"),
    case("square_weight_first", "-,0 -> 0 [8]", f"return ({F}.linear(in_1, in_0),)", in_0="8,8", in_1="8,8"),
    case("named_parameter_from_the_left", "-,1 -> 1 [7]", "return (torch.softmax(in_0 @ in_1, 0),)",
         in_0="6,6 l_self_modules_a_parameters_weight_", in_1="6,7"),
    case("mixing_matrix_of_the_sequence", "-,0 -> 0 [4]", "return (torch.matmul(in_0, in_1),)",
         in_0="4,4", in_1="4,4,6"),
    case("attention_with_folded_heads", "0,0,0 -> 0 [8]", f"return (torch.bmm({ATTENTION}, in_2),)",
         in_0="8,5,4", in_1="8,5,4", in_2="8,5,4"),
    case("folded_heads_and_a_mask_of_the_batch", "0*4,0 -> 0*4 [2]",
         "a = in_0.view(2, 4, 5, 5) + in_1\nreturn (torch.softmax(a.view(8, 5, 5), -1),)",
         in_0="8,5,5", in_1="2,1,1,5"),
    case("windows_with_a_mask_of_the_window", "0*3,- -> 0*3 [4]",
         "a = in_0.view(4, 3, 5, 5) + in_1.unsqueeze(0)\nreturn (torch.softmax(a.view(-1, 5, 5), -1),)",
         in_0="12,5,5", in_1="3,5,5"),
    case("sdpa", "0,0,0,0 -> 0 [3]",
         f"return ({F}.scaled_dot_product_attention(in_0, in_1, in_2, attn_mask=in_3),)",
         in_0="3,2,5,4", in_1="3,2,5,4", in_2="3,2,5,4", in_3="3,1,5,5"),
    case("grouped_query", "0,0 -> 0 [2]",
         "a = in_1.repeat_interleave(2, dim=1)\nreturn (torch.softmax(torch.matmul(in_0, a.transpose(2, 3)), -1),)",
         in_0="2,4,5,8", in_1="2,2,5,8"),
    case("mask_per_row", "0,0 -> 0 [3]", "return (torch.softmax(in_1 * 0.5 + in_0, -1),)",
         in_0="3,1,1,6", in_1="3,4,6,6"),
    case("mask_for_all_rows", "-,0 -> 0 [3]", "return (torch.softmax(in_1 * 0.5 + in_0, -1),)",
         in_0="1,1,6,6", in_1="3,4,6,6"),
    case("rotary_tables_shared", "-,0,- -> 0 [2]",
         "a = torch.cat((-in_1[..., 4:], in_1[..., :4]), dim=-1)\nreturn (in_1 * in_0 + a * in_2,)",
         in_0="1,1,6,8", in_1="2,4,6,8", in_2="1,1,6,8"),
    case("flattened_tokens", "0 -> 0*4 [3]", "return (torch.softmax(in_0.reshape(-1, 5), -1),)", in_0="3,4,5"),
    case("tokens_of_a_folded_batch_pooled", "0*4 -> 0 [3]", "return (in_0.view(3, 4, 5).mean(1),)", in_0="12,5"),
    case("pairs_of_rows", "0*2 -> 0*2 [4]",
         "a = torch.softmax(in_0.view(4, 2, 5), 1)\nreturn (torch.softmax(a.view(8, 5), -1),)", in_0="8,5"),
    case("beams_outside_the_batch", "0*3i -> 0 [4]",
         "a = in_0.chunk(3, dim=0)\nreturn (torch.softmax(a[0] + a[1] * a[2], -1),)", in_0="12,5"),
    case("concatenated_along_the_batch", "0,0 -> 0*2i [4]",
         "return (torch.softmax(torch.cat([in_0, in_1], 0), -1),)", in_0="4,6", in_1="4,6"),
    case("stacked_and_interleaved", "0,0 -> 0*2 [4]",
         "return (torch.softmax(torch.stack([in_0, in_1], 1).flatten(0, 1), -1),)", in_0="4,6", in_1="4,6"),
    case("repeated_for_beams", "0 -> 0*3 [4]", "return (torch.softmax(in_0, -1).repeat_interleave(3, 0),)", in_0="4,6"),
    case("sequence_first_attention", "1,1,1 -> 1 [3]",
         "a = in_0.transpose(0, 1)\nb = in_1.transpose(0, 1)\nc = in_2.transpose(0, 1)\n"
         "d = torch.softmax(torch.bmm(a, b.transpose(1, 2)), -1)\nreturn (torch.bmm(d, c).transpose(0, 1),)",
         in_0="5,3,8", in_1="5,3,8", in_2="5,3,8"),
    case("sequence_first_running_sum", "1 -> 1 [3]", "return (torch.softmax(torch.cumsum(in_0, 0), -1),)",
         in_0="5,3,8"),
    case("sequence_first_pooled", "1 -> 0 [3]", "return (torch.softmax(in_0.mean(0), -1),)", in_0="5,3,8"),
    case("baked_view", "0 -> 0 [4]", "return (torch.softmax(in_0.view(4, 6, 2, 5), -1),)", in_0="4,6,10"),
    case("baked_fold", "0 -> 0*6 [4]", "return (torch.softmax(in_0.view(24, 10), -1),)", in_0="4,6,10"),
    case("baked_slice_of_all_rows", "0 -> 0 [12]", "return (torch.softmax(in_0[0:12], -1),)", in_0="12,5"),
    case("baked_slice_of_few_rows", "0 -> 0 [4] fixed", "return (torch.softmax(in_0[0:4], -1),)", in_0="4,5"),
    case("baked_zeros", "0 -> 0 [4]",
         "return (torch.softmax(torch.cat([torch.zeros((4, 1)), in_0], -1), -1),)", in_0="4,5"),
    case("class_token_expanded", "-,0 -> 0 [4]",
         "a = in_0.expand(4, -1, -1)\nreturn (torch.softmax(torch.cat((a, in_1), 1), 1),)", in_0="1,1,8", in_1="4,6,8"),
    case("shape_of_an_input_alone", "0,0 -> 0 [4]",
         "a = torch.ones_like(in_0, dtype=torch.int64)[..., 0]\nreturn (torch.cumsum(torch.cat([a, in_1], -1), -1),)",
         in_0="4,6,5", in_1="4,3 int64 0-1"),
    case("one_row", "0,0 -> 0 [1]", f"return ({F}.layer_norm(in_0 + in_1, (8,)),)", in_0="1,6,8", in_1="1,6,8"),
    case("one_row_with_a_baked_view", "0 -> 0 [1]",
         "a = in_0.view(1, 6, 2, 4).transpose(1, 2)\nreturn (torch.softmax(a.matmul(a.transpose(2, 3)), -1),)",
         in_0="1,6,8"),
    case("one_image", "0,- -> 0 [1]", "return (torch.conv2d(in_0, in_1, None, (1, 1), (1, 1)),)",
         in_0="1,3,8,8", in_1="4,3,3,3"),
    case("one_row_and_a_broadcast_table", "0,- -> 0 [1]", "return (torch.softmax(torch.cumsum(in_0, 1) + in_1, -1),)",
         in_0="1,6,8", in_1="6,8"),
    case("one_row_sequence_first", "1 -> 1 [1]",
         "a = in_0.transpose(0, 1)\nreturn (torch.softmax(a.bmm(a.transpose(1, 2)), -1).transpose(0, 1),)",
         in_0="5,1,8"),
    case("one_row_found_by_its_place", "0,0 -> 0 [1]",
         "a = torch.arange(1)\nb = (in_0 == 9).int().argmax(dim=-1)\nreturn (in_1[(a, b)],)",
         in_0="1,6 int64 0-9", in_1="1,6,5"),
    case("one_row_for_ever", "none: only one row", "return (torch.softmax(in_0.view(8), 0),)", in_0="1,8"),
    case("ignores_its_input", "none: no output changes", "return (torch.zeros_like(in_0),)", in_0="4,6"),
    case("one_output_ignores_its_input", "0 -> -,0 [4]", "return (torch.ones_like(in_0), torch.softmax(in_0, -1))",
         in_0="4,6"),
    case("contrastive_of_one_tower", "none: row-wise",
         f"a = {F}.normalize(in_0, dim=1)\nreturn (a @ a.t(),)", in_0="4,6"),
    case("contrastive_of_two_towers", "0,- -> 0 [4]", "return (in_0 @ in_1.t(),)", in_0="4,6", in_1="4,6"),
    case("contrastive_both_ways", "none: row-wise",
         "a = in_0 @ in_1.t()\nreturn (torch.softmax(a, 0) * torch.softmax(a, 1),)", in_0="4,6", in_1="4,6"),
    case("contrastive_loss", "none: scalar",
         f"a = in_0 @ in_1.t()\nreturn ({F}.cross_entropy(a, torch.arange(4)),)", in_0="4,6", in_1="4,6"),
    case("batch_norm_in_training", "none: row-wise",
         f"return ({F}.batch_norm(in_4, in_0, in_1, in_2, in_3, True, 0.1, 1e-05),)",
         in_0="5", in_1="5", in_2="5", in_3="5", in_4="6,5,3,3"),
    case("batch_norm_in_training_then_channels_mixed", "none: row-wise",
         f"return (torch.softmax({F}.batch_norm(in_0, None, None, None, None, True, 0.1, 1e-05), 1),)", in_0="6,5"),
    case("batch_norm_in_evaluation", "-,-,-,-,0 -> 0 [6]",
         f"return ({F}.batch_norm(in_4, in_0, in_1, in_2, in_3, False, 0.1, 1e-05),)",
         in_0="5", in_1="5", in_2="5", in_3="5", in_4="6,5,3,3"),
    case("group_norm", "-,-,0 -> 0 [3]", f"return ({F}.silu({F}.group_norm(in_2, 2, in_1, in_0, 1e-05)),)",
         in_0="8", in_1="8", in_2="3,8,4,4"),
    case("instance_norm", "0 -> 0 [3]", f"return ({F}.instance_norm(in_0, None, None, None, None, True, 0.1, 1e-05),)",
         in_0="3,4,5,5"),
    case("conv_net", "-,-,-,0 -> 0 [3]",
         "a = torch.relu(torch.conv2d(in_3, in_2, None, (1, 1), (1, 1)))\n"
         f"b = {F}.adaptive_avg_pool2d(a, (1, 1)).flatten(1)\nreturn ({F}.linear(b, in_1, in_0),)",
         in_0="7", in_1="7,4", in_2="4,3,3,3", in_3="3,3,6,6"),
    case("squeeze_and_excite", "0,0 -> 0 [2]", "return (in_1 * torch.sigmoid(in_0),)", in_0="2,6,1,1", in_1="2,6,4,4"),
    case("sorted_along_the_batch", "1 -> 1 [5]", "return (torch.sort(in_0, 0)[0],)", in_0="6,5"),
    case("sorted_altogether", "none: row-wise", "return (torch.sort(in_0.flatten())[0].view(6, 5),)", in_0="6,5"),
    case("running_sum_along_the_batch", "none: row-wise", "return (torch.softmax(torch.cumsum(in_0, 0), -1),)",
         in_0="6,5"),
    case("softmax_over_the_batch", "1 -> 1 [5]", "return (torch.softmax(in_0, 0),)", in_0="6,5"),
    case("softmax_over_both", "none: row-wise", "return (torch.softmax(torch.softmax(in_0, 0), 1),)", in_0="6,5"),
    case("rolled_along_the_batch", "none: row-wise", "return (torch.softmax(torch.roll(in_0, 1, 0), -1),)", in_0="6,5"),
    case("flipped_along_the_batch", "none: row-wise", "return (torch.softmax(in_0.flip(0), -1),)", in_0="6,5"),
    case("first_row_subtracted", "none: row-wise", "return (torch.softmax(in_0 - in_0[0:1], -1),)", in_0="6,5"),
    case("position_in_the_batch_added", "none: position",
         "return (torch.softmax(in_0 * torch.arange(6).unsqueeze(1), -1),)", in_0="6,5"),
    case("mean_over_all_subtracted", "none: row-wise", "return (in_0 - in_0.mean(),)", in_0="6,5"),
    case("scaled_by_the_largest_value", "none: row-wise", "return (in_0 / in_0.abs().amax(),)", in_0="6,5"),
    case("scaled_by_a_maximum_with_a_floor", "none: large values",
         "return (torch.softmax(in_0 / in_0.abs().amax().clamp(min=100.0), -1),)", in_0="6,5"),
    case("sum_over_all_times_zero", "none: nan values", "return (torch.softmax(in_0 + in_0.sum() * 0.0, -1),)",
         in_0="6,5"),
    case("longest_row_of_integers", "none: row-wise", "return (torch.cumsum(in_0, 1) - in_0.sum(1).max(),)",
         in_0="6,9 int64 0-1"),
    case("sum_over_the_batch", "1 -> 0 [5]", "return (in_0.sum(0),)", in_0="6,5"),
    case("sum_over_all", "none: scalar", "return (in_0.sum(),)", in_0="6,5"),
    case("rows_and_their_mean", "0 -> 0,- [6]", "return (torch.softmax(in_0, -1), in_0.mean())", in_0="6,5"),
    case("rows_and_the_mean_of_another", "0,- -> 0,- [6]", "return (torch.softmax(in_0, -1), in_1.mean())",
         in_0="6,5", in_1="6"),
    case("two_outputs_of_two_inputs", "0,0 -> 0,0 [6]", "return (torch.softmax(in_0, -1), torch.softmax(in_1, -1))",
         in_0="6,5", in_1="6,3"),
    case("transposed_output", "0 -> 1 [3]", "return (torch.softmax(in_0, -1).t(),)", in_0="3,5"),
    case("added_to_a_transpose", "0,1 -> 0 [6]", "return (torch.softmax(in_0 + in_1.t(), -1),)",
         in_0="6,6", in_1="6,6"),
    case("halves_of_the_features", "0 -> 0 [4]",
         f"a = in_0.chunk(2, dim=-1)\nreturn ({F}.silu(a[0]) * a[1],)", in_0="4,10"),
    case("embedding", "0,- -> 0 [4]", f"return ({F}.embedding(in_0, in_1),)", in_0="4,6 int64 0-9", in_1="10,5"),
    case("embeddings_with_positions", "-,-,0,- -> 0 [4]",
         f"return ({F}.embedding(in_2, in_1) + {F}.embedding(in_3, in_0),)",
         in_0="6,5", in_1="10,5", in_2="4,6 int64 0-9", in_3="1,6 int64 0-5"),
    case("rows_of_a_table_by_index", "-,0 -> 0 [8]", "return (torch.softmax(in_0[in_1], -1),)",
         in_0="8,5", in_1="8 int64 0-7"),
    case("tokens_by_index_select", "-,0*3,0 -> 0 [2]",
         "a = in_0.index_select(0, in_1).view(2, 3, 5)\nreturn (torch.softmax(in_2 + a, -1),)",
         in_0="9,5", in_1="6 int64 0-8", in_2="2,3,5"),
    case("gathered_within_the_row", "0,0 -> 0 [4]", "return (torch.gather(in_0, 1, in_1),)",
         in_0="4,6", in_1="4,3 int64 0-5"),
    case("integers_alone", "0 -> 0,0 [6]", "a = (in_0 > 0).long() * 32\nreturn (a + 0, torch.abs(in_0))",
         in_0="6,7 int64 0-9"),
    case("positions_from_a_mask", "0 -> 0 [4]", "return ((torch.cumsum(in_0, 1) - 1) * in_0,)", in_0="4,6 int64 0-1"),
    case("argmax", "0 -> 0 [6]", "return (in_0.to(torch.int32).argmax(dim=-1),)", in_0="6,9 int64 0-50"),
    case("best_experts_of_a_token", "0 -> 0,0 [6]", "a = torch.topk(torch.softmax(in_0, -1), 2)\nreturn (a[0], a[1])",
         in_0="6,8"),
    case("place_in_an_expert_s_queue", "none: row-wise",
         f"a = {F}.one_hot(in_0.argmax(-1), 8)\nreturn (torch.cumsum(a, 0) * a,)", in_0="6,8"),
    case("scalar_input", "-,0 -> 0 [6]", "return (torch.softmax(in_0 * in_1, -1),)", in_0="", in_1="6,4"),
    case("scalars_alone", "none: scalar", "return (in_0 * in_1,)", in_0="", in_1=""),
    case("written_in_place", "0,- -> 0 [6]", "a = in_0.add_(in_1)\nreturn (torch.softmax(a, -1),)",
         in_0="6,5", in_1="5"),
    case("rows_chosen_by_value", "none: row-wise", "return (in_0[in_0.sum(1) > 0],)", in_0="6,5"),
    case("dropout_in_evaluation", "0 -> 0 [6]", f"return ({F}.dropout(in_0, 0.1, False, False),)", in_0="6,5"),
    case("dropout_in_training", "none: drops at random", f"return ({F}.dropout(in_0, 0.1, True, False),)", in_0="6,5"),
    case("random_numbers", "none: random", "return (in_0 + torch.rand_like(in_0),)", in_0="6,5"),
)  # fmt: skip


def answer_of(found: BatchLayout | NotApplicable) -> str:
    """The search's result in the table's words."""
    if isinstance(found, NotApplicable):
        return f"none: {found.reason}"
    inputs, outputs = (",".join(_axis(axis) for axis in axes) for axes in (found.inputs, found.outputs))
    return f"{inputs} -> {outputs} [{found.size}]" + ("" if found.resizable else " fixed")


def _axis(axis: RowAxis | None) -> str:
    if axis is None:
        return "-"
    return str(axis.dim) + (f"*{axis.factor}" + ("i" if axis.order == "inner" else "") if axis.factor > 1 else "")


def agrees(case: Case, found: BatchLayout | NotApplicable) -> bool:
    answer = answer_of(found)
    if case.answer.startswith("none:"):
        return answer.startswith("none:") and case.answer.removeprefix("none: ") in answer
    return answer == case.answer


def main() -> int:
    agreed = 0
    for line in CASES:
        found = find_batch_layout(line.graph)
        agreed += agrees(line, found)
        if not agrees(line, found):
            print(f"{line.name}: expected {line.answer}; found {answer_of(found)}")
    print(f"{agreed} of {len(CASES)} graphs agree with the answer that was written first")
    return 0 if agreed == len(CASES) else 1


if __name__ == "__main__":
    sys.exit(main())
