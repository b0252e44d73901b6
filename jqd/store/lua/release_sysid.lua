-- Ends a membership: revokes the epoch, gives the daemon's jobs back in steps. To be called until it returns 0.
-- ARGV     now_ms, sysid, epoch, limit, bytes_max
-- Returns  number of jobs given back; 0: none was left, and it is no member any more
-- Errors   JQD_STALE_OWNER when a later epoch is a member, JQD_BAD_VALUE
-- Cost     O(limit · log waiting), and the bytes
register('release_sysid', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local sysid, epoch = ARGV[2], tonumber(ARGV[3])
  local limit, bytes_max = tonumber(ARGV[4]), tonumber(ARGV[5])

  local counter, present = Members.member(sysid)
  if not counter then
    return 0
  elseif present ~= epoch and present ~= 0 then
    fail('JQD_STALE_OWNER', digits(present))
  end
  return Giveback.leave(sysid, counter, limit, bytes_max, now_ms, 0)
end)
