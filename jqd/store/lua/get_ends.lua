-- Returns how jobs ended, failed ones too; which were cancelled or are deleted; and which cancels wait for held jobs.
-- ARGV     now_ms, identity of the store, then ids
-- Returns  flat: id, outcome, row of `generation` or nothing, of jobs that ended with a known outcome; flat: id, up to
--          which generation it is cancelled, of held jobs, and of cancelled ones for which that is known; ids of other
--          cancelled jobs, and of those not here; flat: id, fence, seconds of silence allowed, worker, header of the
--          row, row of `tries`, row of `generation`, the latter two or nothing, of jobs that workers hold
-- Errors   JQD_STORE_CHANGED
-- Cost     O(ids · log ended), and the bytes of the outcomes
register('get_ends', {'no-writes'}, function()
  local FIRST = 3

  Life.expect_life(ARGV[2])
  local found, asked, gone, entrusted = {}, {}, {}, {}

  local has_leases = is_here('leases')
  local function tell_lease(id)
    local hold = About.hold(id)
    if not hold or hold.sysid ~= About.WORKERS then
      return
    end
    local silence, _, worker = Leases.lease(hold.fence)
    local row = redis.call('HGET', K.jobs, id)
    if silence and silence ~= '0' and Move.header(row) then
      for _, value in ipairs({
        id, digits(hold.fence), silence, worker, Move.header_of(row), redis.call('HGET', K.tries, id) or '',
        Leases.generation_of(hold) or '',
      }) do
        table.insert(entrusted, value)
      end
    end
  end

  for at = FIRST, #ARGV do
    local id = ARGV[at]
    local ended = Move.has_ended(id)
    local outcome = ended and redis.call('HGET', K.outcome, id)
    if outcome and outcome:sub(1, 1) ~= Move.CANCELLED then
      found[#found + 1], found[#found + 2] = id, outcome
      found[#found + 1] = redis.call('HGET', K.generation, id) or ''
    elseif outcome or redis.call('HEXISTS', K.jobs, id) == 0 then
      local to = outcome and Change.cancelled_to(id) or 0
      if to > 0 and to >= Change.began(id) then
        asked[#asked + 1], asked[#asked + 2] = id, digits(to)
      else
        gone[#gone + 1] = id
      end
    elseif not ended then
      if redis.call('ZSCORE', K.tombstones, 'c' .. id) then
        asked[#asked + 1], asked[#asked + 2] = id, redis.call('HGET', K.generation, 'c' .. id) or '0'
      end
      if has_leases then
        tell_lease(id)
      end
    end
  end
  return {found, asked, gone, entrusted}
end)
