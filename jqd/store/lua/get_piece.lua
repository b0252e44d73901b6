#!lua flags=no-writes
-- A piece of a large result.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, name of the pieces, number of this one
-- Returns  the piece; nil when it was dropped
-- Errors   JQD_WRONG_TYPE
-- Cost     the bytes
--@include fail keys results
local named, at = ARGV[2], ARGV[3]

expect_kind(results.pieces_key(named), 'pieces')
return redis.call('HGET', results.pieces_key(named), at)
