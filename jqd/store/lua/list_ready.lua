-- Which queues have jobs ready, by name only: those that may go on best first, then some of those that wait for something else.
-- ARGV     now_ms, limit, jobtype or nothing for all
-- Returns  queues, those spelled like their jobtype first; "<jobtype>\30" where jobs of several are loose
-- Errors   JQD_ARGUMENT
-- Cost     O(limit + jobtypes that have such queues + BUCKETS · ASIDE)
register('list_ready', {'no-writes'}, function()
  local limit, jobtype = number(ARGV[2], 'limit'), ARGV[3]
  local BUCKETS, ASIDE = 1000, 100  -- looked at for queues that wait, and queues of each

  local queues = jobtype ~= '' and {jobtype} or redis.call('ZRANGE', K.types, 0, limit - 1)
  if not call.has_keyed then
    return queues
  end
  local seen = {}
  for _, queue in ipairs(queues) do
    seen[queue] = true
  end
  local function add(rows)
    for _, row in ipairs(rows) do
      local queue = row:match('^[^:]*:(.*)$')
      if queue and not seen[queue] and #queues < limit and (jobtype == '' or Queues.type_of(queue) == jobtype) then
        seen[queue] = true
        queues[#queues + 1] = queue
      end
    end
  end
  for _, its in ipairs(jobtype ~= '' and {jobtype} or redis.call('HKEYS', K.keyed)) do
    if its ~= '' and #queues < limit then
      if redis.call('EXISTS', K.loose .. its) == 1 then
        queues[#queues + 1] = its .. '\30'
      end
      add(redis.call('ZRANGE', K.queues .. its, 0, limit - #queues))
    end
  end
  for _, bucket in ipairs(redis.call('ZRANGE', K.due, 0, BUCKETS - 1)) do
    add(redis.call('ZRANGE', K.aside .. bucket, 0, ASIDE - 1))
  end
  return queues
end)
