-- Revokes the epoch of a daemon whose heartbeat stands still, gives its jobs back in steps, then ends its membership.
-- ARGV     now_ms, sysid, counter and epoch as last seen, limit, bytes_max, crash_limit
-- Returns  number of jobs given back; 0: none was left, or the heartbeat moved: the daemon lives
-- Errors   JQD_BAD_VALUE
-- Cost     O(limit · log waiting), and the bytes
register('reap', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local sysid, seen_counter, seen_epoch = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local limit, bytes_max, crash_limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

  local counter, epoch = Members.member(sysid)
  local revoked = epoch == 0
  local as_seen = counter == seen_counter and epoch == seen_epoch
  if not counter or not (revoked or as_seen) then
    return 0
  end
  return Giveback.leave(sysid, counter, limit, bytes_max, now_ms, crash_limit,
    revoked and '+inf' or digits(epoch))
end)
