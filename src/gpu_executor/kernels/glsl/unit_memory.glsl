// Buffers that are accessed in units of 1, 2 or 4 words. Each buffer is declared three times; the
// number of words in a unit is the same for all invocations.

#define UNITS_VIEWS(at, name, access)                                                         \
    layout(set = 0, binding = at, std430) access buffer name##_By1 { uint name##_by1[]; };    \
    layout(set = 0, binding = at, std430) access buffer name##_By2 { uvec2 name##_by2[]; };   \
    layout(set = 0, binding = at, std430) access buffer name##_By4 { uvec4 name##_by4[]; };

// target[i] = source[j]
#define COPY_UNIT(unit_words, target, i, source, j)                                           \
    if (unit_words == 4) target##_by4[i] = source##_by4[j];                                   \
    else if (unit_words == 2) target##_by2[i] = source##_by2[j];                              \
    else target##_by1[i] = source##_by1[j];
