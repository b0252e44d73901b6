-- Finds leases without a sign of life for too long, and sets them aside: of what their workers report only a success
-- counts. The caller writes how their attempts ended, which ends the lease; if it dies before, the lease is found again
-- after a while. A lease without a sign since a journal told of it, or in this life of the store, is given back at
-- once, untried: nobody knows what became of it.
-- ARGV     1    now_ms
--          2    identity of the store
--          3    about how many jobs to return
--          then pairs: seconds of silence, or 0 for leases that were set aside; number of the sequence of signs so many
--               seconds ago by the caller's clock
-- Returns  number of the sequence now; all seconds of silence of leases; number of jobs given back; then per lease:
--          fence, worker, seconds of silence, flat: id, header of the row, row of `tries`, row of `generation`, the
--          latter two or nil
-- Errors   JQD_STORE_CHANGED, JQD_BAD_VALUE
-- Cost     O(pairs + jobs of silent leases · log waiting), and the bytes of their rows
register('find_silent', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local limit = tonumber(ARGV[3])
  local FIRST, FIELDS = 4, 2

  Life.expect_life(ARGV[2])
  local marks = {}
  for at = FIRST, #ARGV, FIELDS do
    table.insert(marks, {ARGV[at], tonumber(ARGV[at + 1])})
  end
  local began = tonumber(redis.call('HGET', K.life, 'high') or '0') or 0
  local told_of, given_back, found = 0, 0, {}

  local function give_back(ids, fence)
    local holds = About.look(ids)
    for _, id in ipairs(ids) do
      Back.give_back(id, holds[id] or About.of(fence, About.WORKERS), redis.call('HGET', K.jobs, id), now_ms)
    end
    given_back = given_back + #ids
    Back.finish(ids, now_ms, now_us)
  end

  -- Reads the rows of jobs that may be tried again; jobs that have not come, or cannot be read, are given back.
  local function rows_of(ids, fence)
    local flat, unreadable, holds = {}, {}, About.look(ids)
    for _, id in ipairs(ids) do
      local row = redis.call('HGET', K.jobs, id)
      if row and Move.header(row) then
        for _, value in ipairs({id, Move.header_of(row), redis.call('HGET', K.tries, id),
            holds[id] and Leases.generation_of(holds[id]) or false}) do
          table.insert(flat, value)
        end
      else
        table.insert(unreadable, id)
      end
    end
    give_back(unreadable, fence)
    return flat
  end

  local function end_lease(fence, last_beat, silence)
    local ids = Leases.jobs_of(fence)
    local _, told, worker = Leases.lease(fence)
    if told == '1' or last_beat <= began then
      give_back(ids, fence)
      ids = {}
    end
    local rows = rows_of(ids, fence)
    if #rows > 0 then
      Leases.beat(fence, '0', told or '0', worker or '', now_us)
      table.insert(found, {digits(fence), worker or '', silence, rows})
      told_of = told_of + #rows / 4
    end
    if #rows == 0 or silence ~= '0' then
      Leases.drop_beat(fence, silence)
    end
    Leases.tidy_lease(fence)
  end

  for _, pair in ipairs(marks) do
    local silence, mark = unpack(pair)
    local looked = 0
    while told_of + given_back < limit and looked < limit do
      looked = looked + 1
      local oldest = redis.call('ZRANGE', K.beats .. silence, '-inf', digits(mark), 'BYSCORE', 'LIMIT', 0,
        1, 'WITHSCORES')
      if #oldest == 0 then
        break
      end
      local fence = oldest[1]:find('^%d+$') and tonumber(oldest[1])
      if fence and digits(fence) == oldest[1] then
        end_lease(fence, tonumber(oldest[2]), silence)
      else
        redis.call('ZREM', K.beats .. silence, oldest[1])  -- no lease has such a name: it would be found for ever
      end
    end
  end
  local numbers = {}
  for silence in (redis.call('HGET', K.leases, 'silences') or ''):gmatch('%d+') do
    table.insert(numbers, tonumber(silence))
  end
  return {redis.call('GET', K.fence) or '0', numbers, given_back, found}
end)
