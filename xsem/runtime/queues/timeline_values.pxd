cpdef bint are_values(tuple given)
cpdef list last_values(tuple states)
cpdef bint all_above(values, list lasts) except -1
cpdef store_values(tuple states, values)
