-- Returns names of what has jobs ready, in parts: the first part has all jobtypes and all keyed queues, unless these
-- are many. Then they follow in parts of their own, in no order.
-- ARGV     now_ms, part ("0" first), queues_max and jobtypes_max in the first part, about how many in another part, the
--          only jobtype or nothing
-- Returns  the next part ("0": that was all), names, this part as it is to be named when it is asked for again: so that
--          what was left to other parts stays there; "<jobtype>\30" if jobs of keyed queues are loose
-- Errors   none
-- Cost     O(names of the part), and of the first also O(jobtypes with keyed queues)
register('list_ready', {'no-writes'}, function()
  local part, queues_max, types_max = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local count, jobtype, names = tonumber(ARGV[5]), ARGV[6], {}

  local apart = part:match('^0(q?t?)$')
  if apart then
    local queues = (apart:find('q') or redis.call('HLEN', K.tied) > queues_max) and 'q' or ''
    local types = (apart:find('t') or jobtype == '' and redis.call('ZCARD', K.types) > types_max) and 't' or ''
    if jobtype ~= '' then
      names = {jobtype}
    elseif types == '' then
      names = redis.call('ZRANGE', K.types, 0, -1)
    end
    local with_keyed = call.has_keyed and (jobtype ~= '' and {jobtype} or redis.call('HKEYS', K.keyed)) or {}
    for _, type_name in ipairs(with_keyed) do
      if type_name ~= '' and redis.call('EXISTS', K.loose .. type_name) == 1 then
        names[#names + 1] = type_name .. '\30'
      end
    end
    for _, queue in ipairs(queues == '' and redis.call('HKEYS', K.tied) or {}) do
      names[#names + 1] = queue
    end
    return {queues ~= '' and 'q' .. types .. '0' or types ~= '' and 't0' or '0', names, '0' .. queues .. types}
  end

  local kind, types, place = part:match('^([qt])(t?)(%d+)$')
  local behind, rows
  if kind == 'q' then
    behind, rows = unpack(redis.call('HSCAN', K.tied, place, 'MATCH', '*', 'COUNT', count))
  else
    behind, rows = unpack(redis.call('ZSCAN', K.types, place, 'MATCH', '*', 'COUNT', count))
  end
  for at = 1, #rows, 2 do
    names[#names + 1] = rows[at]
  end
  return {behind ~= '0' and kind .. types .. behind or types ~= '' and 't0' or '0', names, part}
end)
