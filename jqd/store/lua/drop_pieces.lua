#!lua flags=allow-oom
-- Drops the pieces of a large result that is not kept after all, unless an outcome names them already.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, name of the pieces
-- Returns  1
-- Errors   JQD_WRONG_TYPE; none after the first write
-- Cost     O(pieces)
--@include fail keys results
local named = ARGV[2]

results.expect()
results.drop_pieces(named)
return 1
