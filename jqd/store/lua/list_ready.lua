-- Returns names of what has jobs ready: jobtypes with the first part, or with parts of their own where they are many;
-- then keyed queues, part by part, in no order.
-- ARGV     now_ms, part ("0" first), about how many queues, and jobtypes, the only jobtype or nothing
-- Returns  the next part ("0": that was all; "t…": jobtypes), names; "<jobtype>\30" if jobs of keyed queues are loose
-- Errors   JQD_ARGUMENT
-- Cost     O(part), and of the first also O(jobtypes with keyed queues)
register('list_ready', {'no-writes'}, function()
  local place, count, limit, jobtype = ARGV[2], number(ARGV[3], 'count'), number(ARGV[4], 'limit'), ARGV[5]
  local is_first, types_at, names = place == '0', place:match('^t(%d+)$'), {}
  if is_first and jobtype ~= '' then
    names = {jobtype}
  elseif is_first and redis.call('ZCARD', K.types) <= limit then
    names = redis.call('ZRANGE', K.types, 0, -1)
  elseif is_first or types_at then
    local types_behind, types = unpack(redis.call('ZSCAN', K.types, types_at or '0', 'MATCH', '*', 'COUNT', limit))
    for at = 1, #types, 2 do
      names[#names + 1] = types[at]
    end
    place = types_behind == '0' and '0' or 't' .. types_behind
  end
  for _, type_name in ipairs(is_first and call.has_keyed and (jobtype ~= '' and {jobtype}
      or redis.call('HKEYS', K.keyed)) or {}) do
    if type_name ~= '' and redis.call('EXISTS', K.loose .. type_name) == 1 then
      names[#names + 1] = type_name .. '\30'
    end
  end
  if place:sub(1, 1) == 't' then
    return {place, names}
  end
  local behind, rows = unpack(redis.call('HSCAN', K.tied, place, 'MATCH', '*', 'COUNT', count))
  for at = 1, #rows, 2 do
    names[#names + 1] = rows[at]
  end
  return {behind, names}
end)
