-- Jobs wait for others: they are told when these end, and when these begin anew. While the store is told what it
-- forgot, or a change of an ended job is on its way that may begin it anew, no end is certain.
-- ARGV     1    now_ms
--          2    identity of the store as the caller knows it
--          then for each pair: child; its tenant; "=" and the parent's own id, or its id; last field of the journal
--               that made it, or nothing
-- Returns  per pair, flat: id of the parent, nothing for an own id that nobody has; how it ended: '' for not yet, '?'
--          where no such job of that tenant is here, '~' where it, or what it ended as, is on its way, or may be: a
--          daemon tells its jobs again; the last id applied of its journal, '' for none so far, nil where that journal
--          is not known here; its stage (links)
-- Errors   JQD_STORE_CHANGED, JQD_ARGUMENT
-- Cost     O(pairs · log children)
register('watch_parents', {'allow-oom'}, function()
  local now_ms, identity = clock(ARGV[1]), ARGV[2]
  local FIRST, FIELDS = 3, 4

  Life.expect_life(identity)

  local pairs_of = {}
  for at = FIRST, #ARGV, FIELDS do
    local one = {child = ARGV[at], tenant = ARGV[at + 1], id = Links.given_id(ARGV[at + 2]) or '',
      last_field = ARGV[at + 3]}
    pairs_of[#pairs_of + 1] = one
  end

  local is_whole = Settled.is_settled(identity)

  -- Whoever waits for it is told from now on. An end that is not certain is told when it is.
  local function watch_one(one, how)
    local is_over = Counts.ENDED[how]
    local is_certain = not is_over or is_whole and not Change.is_awaited(one.id, now_ms)
      and not Change.awaits_newer(one.id, redis.call('HGET', K.jobs, one.id))
    local stage = Links.stage_of(Change.began(one.id), is_over and is_certain)
    redis.call('ZADD', K.linked, 0, one.id)
    -- This answer may be lost, and who took the child since be done with it: a mark is lowered here, and only who told
    -- raises it.
    local told = redis.call('ZSCORE', K.children .. one.id, one.child)
    if not told or tonumber(told) > stage then
      redis.call('ZADD', K.children .. one.id, digits(stage), one.child)
    end
    if not is_certain then
      Counts.note_ends({one.id}, now_ms)
      return '~', stage
    end
    return is_over and how or '', stage
  end

  local answer = {}
  for _, one in ipairs(pairs_of) do
    local stage, jobtype, how = 0, nil, '?'
    if one.id ~= '' then
      jobtype, how = Stands.how_stands(one.id)
    end
    if jobtype and (jobtype:match('^(.-)\31') or '') == one.tenant then
      how, stage = watch_one(one, how)
    elseif not jobtype and one.id ~= '' and (Behind.is_any() or redis.call('ZSCORE', K.tomb, 'p' .. one.id)) then
      how = '~'
    else
      how = '?'
    end
    answer[#answer + 1], answer[#answer + 2] = one.id, how
    answer[#answer + 1], answer[#answer + 2] = redis.call('HGET', K.applied, one.last_field), digits(stage)
  end
  return answer
end)
