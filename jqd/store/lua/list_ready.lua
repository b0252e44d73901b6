-- Returns names of what has jobs ready: jobtypes, the best first, with the first part; and a part of the keyed queues,
-- in no order.
-- ARGV     now_ms, part ("0" first), about how many queues, how many jobtypes at most, the only jobtype or nothing
-- Returns  the next part ("0": that was all), names; "<jobtype>\30" if jobs of keyed queues are loose
-- Errors   JQD_ARGUMENT
-- Cost     O(part), and of the first also O(jobtypes)
register('list_ready', {'no-writes'}, function()
  local place, count, limit, jobtype = ARGV[2], number(ARGV[3], 'count'), number(ARGV[4], 'limit'), ARGV[5]
  local is_first = place == '0'
  local names = is_first and (jobtype ~= '' and {jobtype} or redis.call('ZRANGE', K.types, 0, limit - 1)) or {}
  for _, type_name in ipairs(is_first and call.has_keyed and (jobtype ~= '' and {jobtype}
      or redis.call('HKEYS', K.keyed)) or {}) do
    if type_name ~= '' and redis.call('EXISTS', K.loose .. type_name) == 1 then
      names[#names + 1] = type_name .. '\30'
    end
  end
  local behind, rows = unpack(redis.call('HSCAN', K.tied, place, 'MATCH', '*', 'COUNT', count))
  for at = 1, #rows, 2 do
    names[#names + 1] = rows[at]
  end
  return {behind, names}
end)
