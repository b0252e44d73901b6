#!lua flags=allow-oom
-- Deletes jobs that have ended, dead ones too, with all that is known of them.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity of the store as the caller knows it, then ids
-- Returns  those that were there and had ended
-- Errors   JQD_UNSETTLED while the store is told again what it forgot, JQD_WRONG_TYPE; none after the first write
-- Cost     O(ids · log ended)
--@include fail keys now counts order queues heads pages members settled holder move stands early tries results change delete
local now_ms, FIRST = clock(ARGV[1]), 3

expect_deletable()
expect('dead', 'life', 'members', 'outbox', 'shelves')
expect_told(ARGV[2], now_ms)
local gone, ids = {}, {}
for at = FIRST, #ARGV do
  ids[#ids + 1] = ARGV[at]
end
local owes = owes_children(ids)
for at = FIRST, #ARGV do
  local id = ARGV[at]
  -- A job whose next content is on its way has not ended; one that owes its end to jobs that wait for it is deleted once they were told.
  if has_ended(id) and not owes[id] and not awaits_newer(id, has_changes and redis.call('HGET', K.jobs, id)) then
    table.insert(gone, id)
  end
end
delete_jobs(gone, now_ms)
return gone
