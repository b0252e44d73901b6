-- Where jobs are ready: places for `list_ids`.
-- ARGV     now_ms, limit, jobtype or nothing for all
-- Returns  flat: place, what it is of, jobtype of all that wait there: line, level and jobtype, that jobtype; aside, bucket, nothing
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT
-- Cost     O(jobtypes + places)
register('list_lines', {'no-writes'}, function()
  local limit, jobtype = number(ARGV[2], 'limit'), ARGV[3]
  local BUCKETS = 1000  -- looked at for lines that wait

  expect('counts')
  local places = {}
  local function add_levels(its)
    expect_kind(K.levels .. its, 'levels')
    for _, level in ipairs(redis.call('ZRANGE', K.levels .. its, 0, limit - 1)) do
      if #places < 3 * limit then
        local at = #places
        places[at + 1], places[at + 2], places[at + 3] = 'line', level .. ':' .. its, its
      end
    end
  end

  if jobtype ~= '' then
    add_levels(jobtype)
  else
    for _, its in ipairs(Counts.waiting_types()) do
      add_levels(its)
    end
  end
  for _, bucket in ipairs(call.has_limits and redis.call('ZRANGE', K.due, 0, BUCKETS - 1) or {}) do
    if #places < 3 * limit and redis.call('EXISTS', K.aside .. bucket) == 1 then
      local at = #places
      places[at + 1], places[at + 2], places[at + 3] = 'aside', bucket, ''
    end
  end
  return places
end)
