-- Outcomes as apply_outcomes is told of them: groups of those that have something in common. Needs fail, keys, change.
-- Gives fates (job.Fate); read_outcomes(at): from the argument `at` on → outcomes, their ids, groups, whether jobs are handed over.
-- In an outcome are id, packed, kept: as `outcome` keeps it, and what its group says: fate, fence, meant: the generation that it may be of at
-- most, generation: as text, where one was named, jobtype, result, log, follows, plain: ids of those that end so and are as they were claimed;
-- of a RETRY attempt, priority, delay_ms; of a hand-over silence, worker.
local SUCCEEDED, DEAD, RETRY, ENTRUSTED = 1, 3, 4, 5
local read_outcomes
do
  local GROUP, FIELDS = 5, 2
  local FOLLOWED = 6
  local has_lent = false

  local function read_group(at)
    local group = {fate = number(ARGV[at], 'fate'), fence = tonumber(ARGV[at + 1]), jobtype = ARGV[at + 2], result = ARGV[at + 3]}
    if group.fence then
      group.meant = group.fence - 1
    else
      local fence, generation = ARGV[at + 1]:match('^(%d+):(%d+)$')
      group.fence, group.meant = number(fence, 'fence'), number(generation, 'generation')
      group.generation = generation
    end
    if group.fate == RETRY then
      local attempt, priority, delay_ms = group.result:match('^(%d+) (-?%d+) (%d+)')
      if not attempt then
        fail('JQD_ARGUMENT', 'retry')
      end
      expect_kind(ready_key(group.jobtype), 'ready')
      group.attempt, group.priority, group.delay_ms = tonumber(attempt), priority, tonumber(delay_ms)
      group.log = group.result:match('\n(.*)$')
    elseif group.fate == ENTRUSTED then
      group.silence, group.worker = group.result:match('^(%d+) (.*)$')
      if not group.silence then
        fail('JQD_ARGUMENT', 'entrusted')
      end
      has_lent = true
    elseif group.fate == FOLLOWED then
      local size = group.result:match('^(%d+) ')
      local first = #(size or '') + 2
      if not size or #group.result < first + size then
        fail('JQD_ARGUMENT', 'follows')
      end
      expect('outbox')
      group.fate, group.follows = SUCCEEDED, group.result:sub(first + size)
      group.result = group.result:sub(first, first + size - 1)
    elseif group.fate ~= SUCCEEDED and group.result ~= '' then
      group.log = group.result
    end
    return group
  end

  function read_outcomes(at)
    local outcomes, ids, groups = {}, {}, {}
    while at <= #ARGV do
      local group, count = read_group(at), number(ARGV[at + 4], 'count')
      local common = {__index = group}
      group.plain, groups[#groups + 1] = {}, group  -- ids of those that end so
      at = at + GROUP
      for place = at, at + count * FIELDS - 1, FIELDS do
        local id, packed = ARGV[place], ARGV[place + 1]
        local kept = group.generation and meant_so(group.generation, packed) or packed
        outcomes[#outcomes + 1], ids[#ids + 1] = setmetatable({id = id, packed = packed, kept = kept}, common), id
      end
      at = at + count * FIELDS
    end
    if at ~= #ARGV + 1 then
      fail('JQD_ARGUMENT', 'outcomes')
    end
    return outcomes, ids, groups, has_lent
  end
end
