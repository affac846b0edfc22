// How invocations find their elements, the same for every element-wise kernel.
//
// Constant 0 is the work-group size and constant 1 the number of elements an invocation takes; the
// plan chooses both. Neighbouring invocations take neighbouring elements, so that loads coalesce.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PER_INVOCATION = 1;

uint first_element() {
    return gl_WorkGroupID.x * (gl_WorkGroupSize.x * PER_INVOCATION) + gl_LocalInvocationID.x;
}
