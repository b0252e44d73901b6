-- Makes the jobs ready that earlier epochs of this daemon hold: their fences are below its epoch.
-- ARGV     now_ms, sysid, epoch, limit, bytes_max, crash_limit: 0: no daemon died, the epoch that died: its
--          claims have higher fences; in later steps the present epoch, as what is left was not alone
-- Returns  number of jobs given back; 0: none is left
-- Errors   JQD_STALE_OWNER, JQD_BAD_VALUE
-- Cost     O(limit · log waiting), and the bytes
register('give_back', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local sysid, epoch = ARGV[2], tonumber(ARGV[3])
  local limit, bytes_max, crash_limit = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

  Members.own(sysid, epoch)
  return Giveback.give_back(sysid, digits(epoch), limit, bytes_max, now_ms, crash_limit, ARGV[7])
end)
