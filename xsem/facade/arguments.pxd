from xsem.runtime.queues.prepared_append cimport PreparedAppend
from xsem.runtime.queues.timeline_values cimport are_values

cpdef checked_params(PreparedAppend append, params)
