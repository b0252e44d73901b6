-- Reads the outcomes that apply_outcomes gets, in groups of those that share something. An outcome has these fields,
-- its own or its group's:
--
--     id, jobtype, fate, fence          generation  of the content that ran, as text, if it was named
--     kept      as `outcome` keeps it   meant       the latest generation of which it can be
--     result    to be kept              log, log_from  what the attempt printed
--     follows   jobs for the outbox     brings      its followers are in the call; copied: a copy's positions
--     plain     of the group: ids of jobs that end so and are as they were claimed
--     attempt, priority, delay_ms       of a RETRY
--     silence, worker                   of a hand-over
Outcomes.SUCCEEDED, Outcomes.DEAD, Outcomes.RETRY, Outcomes.ENTRUSTED = 1, 3, 4, 5

local function given(good, _, ...) return good and {...} or {} end

-- Returns the first `count` values of an outcome (job.Outcome), or none if it cannot be read. At most twelve: those
-- behind may be bytes, which Lua cannot read.
function Outcomes.values(kept, count)
  local _, packed = Outcomes.parts(kept)
  return given(pcall(cmsgpack.unpack_limit, packed, count, packed:byte(1) == 0xdc and 3 or 1))
end

-- Splits a row of `outcome`: its mark ('' for none); the packed outcome ('' if jqd itself ended the job); the
-- generation that ran (0 if none is named).
function Outcomes.parts(kept)
  local mark = kept:sub(1, 1)
  if mark == Move.MEANT then
    local generation, from = kept:match('^.(%d+):()')
    return mark, kept:sub(from or 1), tonumber(generation) or 0
  elseif mark == Move.CANCELLED then
    return mark, (select(2, Outcomes.parts(kept:sub(2)))), 0
  elseif mark == Move.CRASHED or mark == Move.EXPIRED then
    return mark, '', 0
  end
  return '', kept, 0
end

local GROUP, FIELDS = 5, 2
local BROUGHT = '='  -- stands for followers that are in the call
local SAID_MORE = 6  -- the fate of a success that has more than a result

-- Reads "<bytes printed before> <text>", or nothing.
local function read_log(group, log_row)
  if log_row and log_row ~= '' then
    local from, text = log_row:match('^(%d+) (.*)$')
    group.log_from, group.log = tonumber(from), text
  end
end

local function read_group(at)
  local group = {fate = tonumber(ARGV[at]), fence = tonumber(ARGV[at + 1]), jobtype = ARGV[at + 2],
    result = ARGV[at + 3]}
  group.meant = group.fence - 1
  if group.fate == Outcomes.RETRY then
    local attempt, priority, delay_ms = group.result:match('^(%d+) (-?%d+) (%d+)')
    group.attempt, group.priority, group.delay_ms = tonumber(attempt), priority, tonumber(delay_ms)
    read_log(group, group.result:match('\n(.*)$'))
  elseif group.fate == Outcomes.ENTRUSTED then
    group.silence, group.worker = group.result:match('^(%d+) (.*)$')
  elseif group.fate == SAID_MORE then
    local size, first = group.result:match('^(%d+) ()')
    group.fate, group.says_more = Outcomes.SUCCEEDED, true
    read_log(group, group.result:sub(first + size))
    group.result = group.result:sub(first, first + size - 1)
  elseif group.fate ~= Outcomes.SUCCEEDED then
    read_log(group, group.result)
  end
  if group.fate == Outcomes.SUCCEEDED then
    Results.expect_pieces(Results.pieces_in(group.result))
    group.pieces = Results.pieces_in(group.result)
  end
  return group
end

-- Reads the arguments from `at` on. Returns outcomes, their ids, groups.
function Outcomes.read_outcomes(at)
  local outcomes, ids, groups = {}, {}, {}
  while at <= #ARGV do
    local group, count = read_group(at), tonumber(ARGV[at + 4])
    local common = {__index = group}
    group.plain, groups[#groups + 1] = {}, group
    local fields = group.says_more and FIELDS + 1 or FIELDS
    at = at + GROUP
    for place = at, at + count * fields - 1, fields do
      local id, packed = ARGV[place], ARGV[place + 1]
      local outcome = {id = id, kept = packed}
      local colon = id:find(':', 1, true)
      if colon then
        id, outcome.generation = id:sub(1, colon - 1), id:sub(colon + 1)
        outcome.id, outcome.meant = id, tonumber(outcome.generation)
        outcome.kept = Change.meant_so(outcome.generation, packed)
      end
      local follows = group.says_more and ARGV[place + 2] or ''
      if follows:sub(1, 1) == BROUGHT then
        local first, last = follows:match('^.(%d+) (%d+)$')
        outcome.brings, outcome.copied = true, first and {first, last}
      elseif follows ~= '' then
        outcome.follows = follows
      end
      outcomes[#outcomes + 1], ids[#ids + 1] = setmetatable(outcome, common), id
    end
    at = at + count * fields
  end
  return outcomes, ids, groups
end
