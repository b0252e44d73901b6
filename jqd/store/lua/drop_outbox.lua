#!lua flags=allow-oom
-- Takes followers out of the outbox, or off the shelf of a tenant, that are in a journal.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, "=" and a tenant, or nothing, entries
-- Returns  how many were there
-- Errors   JQD_WRONG_TYPE; none after the first write
-- Cost     O(entries · log entries), and the bytes
--@include fail keys
local tenant = ARGV[2]:match('^=(.*)$')

expect('outbox', 'shelves')
expect_kind(shelf_key(tenant or ''), 'shelf')
local key = tenant and shelf_key(tenant) or K.outbox
local gone = redis.call('ZREM', key, unpack(ARGV, 3))
if tenant and redis.call('EXISTS', key) == 0 then
  redis.call('ZREM', K.shelves, tenant)
end
return gone
