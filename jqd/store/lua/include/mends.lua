-- Rows of the indexes that are wrong or missing, as a look meets them: an older jqd writes none in `heads`, and one for each keyed queue. Needs keys, heads, pages.
-- Gives mends.wrong(queue, priority, id); mends.meet(index, row, jobtype, priority): a row of a keyed queue, those of a priority in their order; mends.sample(): looks for
-- missing ones; mends.write(): writes what is right.
local mends = {SAMPLE = 2}  -- jobtypes looked at whether they stand in the index
do
  local wrong, extra, leads = {}, {}, {}  -- rows behind the best one; jobtype → priorities whose best one is to stand there
  local met = {}  -- jobtype → priority → first row

  function mends.wrong(queue, priority, id) wrong[#wrong + 1] = {queue, priority, id} end

  local function lead(jobtype, priority)
    leads[jobtype] = leads[jobtype] or {}
    leads[jobtype][priority] = true
  end

  function mends.meet(index, row, jobtype, priority)
    local its = met[jobtype] or {}
    met[jobtype] = its
    if (its[priority] or row) ~= row then
      extra[#extra + 1] = {index, row}
      lead(jobtype, priority)
    else
      its[priority] = row
    end
  end

  function mends.sample()
    for _, jobtype in ipairs(redis.call('EXISTS', K.types) == 1 and redis.call('ZRANDMEMBER', K.types, mends.SAMPLE) or {}) do
      expect_ready(jobtype)
      local id, priority = first_waiting(jobtype)
      if id and not redis.call('ZSCORE', keyed.all_of(jobtype), head_row(id, jobtype)) then
        mends.wrong(jobtype, priority)
      end
      local row, its
      if keyed.some() then
        row, its = keyed.best(jobtype)
      end
      if row and not redis.call('ZSCORE', keyed.all_of(jobtype), row) then
        lead(jobtype, its)
      end
    end
  end

  function mends.write()
    for _, row in ipairs(wrong) do
      mend_head(unpack(row))
    end
    for _, row in ipairs(extra) do
      redis.call('ZREM', unpack(row))
    end
    for jobtype, priorities in pairs(leads) do
      for priority in pairs(priorities) do
        keyed.lead(jobtype, priority)
      end
    end
  end
end
