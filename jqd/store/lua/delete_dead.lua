-- Deletes jobs that have ended, dead ones too, with all that is known of them.
-- ARGV     now_ms, identity of the store as the caller knows it, then ids
-- Returns  those that were there and had ended
-- Errors   JQD_UNSETTLED while the store is told again what it forgot; none after the first write
-- Cost     O(ids · log ended)
register('delete_dead', {'allow-oom'}, function()
  local now_ms, FIRST = clock(ARGV[1]), 3

  Settled.expect_told(ARGV[2], now_ms)
  local gone, ids = {}, {}
  for at = FIRST, #ARGV do
    ids[#ids + 1] = ARGV[at]
  end
  local owes = Delete.owes_children(ids)
  for at = FIRST, #ARGV do
    local id = ARGV[at]
    -- A job whose next content is on its way has not ended; one that owes its end to jobs that wait for it is deleted once they were told.
    if Move.has_ended(id) and not owes[id] and not Change.awaits_newer(id, call.has_changes and redis.call('HGET', K.jobs, id)) then
      table.insert(gone, id)
    end
  end
  Delete.delete_jobs(gone, now_ms)
  return gone
end)
