-- Notes at parents that jobs wait for them, and returns how they stand. While the store is being restored, or a change
-- is to come that may begin a parent anew, its end is not certain.
-- ARGV     1    now_ms
--          2    identity of the store
--          then for each pair: child; its tenant; "=" and the parent's own id, or its id; last field of the journal
--               that made it, or nothing
-- Returns  per pair, flat: id of the parent, nothing for an own id that nobody has; how it ended: '': not yet, '?': no
--          such job of that tenant is here, '~': the job, or its end, is on its way or may be, as a daemon applies its
--          jobs again; the last id applied of its journal, '' for none so far, nil: that journal is not known here; its
--          stage (links)
-- Errors   JQD_STORE_CHANGED
-- Cost     O(pairs · log children)
register('watch_parents', {'allow-oom'}, function()
  local now_ms, identity = clock(ARGV[1]), ARGV[2]
  local FIRST, FIELDS = 3, 4

  Life.expect_life(identity)

  local pairs_of = {}
  for at = FIRST, #ARGV, FIELDS do
    local pair = {child = ARGV[at], tenant = ARGV[at + 1], id = Links.given_id(ARGV[at + 2]) or '',
      last_field = ARGV[at + 3]}
    pairs_of[#pairs_of + 1] = pair
  end

  local is_whole = Settled.is_settled(identity)

  -- The child is told from now on; an end that is not certain when it is.
  local function watch_one(pair, how)
    local is_over = Counts.ENDED[how]
    local is_certain = not is_over or is_whole and not Change.is_awaited(pair.id, now_ms)
      and not Change.awaits_newer(pair.id, redis.call('HGET', K.jobs, pair.id))
    local stage = Links.stage_of(Change.began(pair.id), is_over and is_certain)
    redis.call('ZADD', K.linked, 0, pair.id)
    -- This answer may be lost, and somebody else may be done with the child meanwhile: so a stage is only lowered here,
    -- and raised when the child was told.
    local known_stage = redis.call('ZSCORE', K.children .. pair.id, pair.child)
    if not known_stage or tonumber(known_stage) > stage then
      redis.call('ZADD', K.children .. pair.id, digits(stage), pair.child)
    end
    if not is_certain then
      Counts.note_ends({pair.id}, now_ms)
      return '~', stage
    end
    return is_over and how or '', stage
  end

  local answer = {}
  for _, pair in ipairs(pairs_of) do
    local stage, jobtype, how = 0, nil, '?'
    if pair.id ~= '' then
      jobtype, how = Stands.how_stands(pair.id)
    end
    if jobtype and (jobtype:match('^(.-)\31') or '') == pair.tenant then
      how, stage = watch_one(pair, how)
    elseif not jobtype and pair.id ~= ''
      and (Behind.is_any() or redis.call('ZSCORE', K.tombstones, 'p' .. pair.id)) then
      how = '~'
    else
      how = '?'
    end
    answer[#answer + 1], answer[#answer + 2] = pair.id, how
    answer[#answer + 1], answer[#answer + 2] = redis.call('HGET', K.applied, pair.last_field), digits(stage)
  end
  return answer
end)
