-- Jobs that wait for others, and groups. Needs keys.
--
--     links      zset  "w<id>": the parents of this blocked job are to be asked; "e<id>": this job ended, its children are to be told → when it is due
--     linked     zset  ids of jobs that have children or parents: only their ends are noted in `links`
--     children   zset  of a parent: id of a child → 0, or 1 when it was told of the end
--     parents    hash  of a child: id of a parent → how it ended, '' while it has not; '#' → how many have; '@' → how many there are, once all are known
--
-- Gives has_parents_ended(child) → whether all of them have, the first that did not succeed, or ''; note_parent(child, parent, how); children_key(id), parents_key(id).
local function children_key(id) return K.children .. id end
local function parents_key(id) return K.parents .. id end

local ENDS_WELL = {succeeded = true, gone = true}

-- An end that is known stays as it was first told.
local function note_parent(child, parent, how)
  local key = parents_key(child)
  local known = redis.call('HGET', key, parent)
  if known and (known ~= '' or how == '') then
    return
  end
  redis.call('HSET', key, parent, how)
  if how ~= '' then
    redis.call('HINCRBY', key, '#', 1)
    if not ENDS_WELL[how] then
      redis.call('HSETNX', key, '!', parent)
    end
  end
end

local function has_parents_ended(child)
  local ended, all, failed = unpack(redis.call('HMGET', parents_key(child), '#', '@', '!'))
  return all and (ended or '0') == all and 1 or 0, failed or ''
end
