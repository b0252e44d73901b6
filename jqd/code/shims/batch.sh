# A batch in sh: a process of its own. $1 is told when `before` is through, or that a text has a wrong syntax; $2 to $5
# are before, beforeEach, body and afterEach; with $6 their syntax is looked at before anything of them runs. The lines
# of the jobs are the standard input of the body, and only the body prints answers.
jqd_ready=$1 jqd_before=$2 jqd_before_each=$3 jqd_body=$4 jqd_after_each=$5
if [ -n "$6" ]; then
  for jqd_text in "$2" "$3" "$4" "$5"; do
    if [ -s "$jqd_text" ] && ! sh -n "$jqd_text" </dev/null >&2; then
      echo broken >"$jqd_ready"
      exit 2
    fi
  done
fi
set --
. "$jqd_before" </dev/null >&2
jqd_code=$?
if [ "$jqd_code" -ne 0 ]; then exit "$jqd_code"; fi
echo ready >"$jqd_ready"
jqd_end() {
  jqd_code=$?
  trap - EXIT
  . "$jqd_after_each" </dev/null >&2
  exit "$jqd_code"
}
trap jqd_end EXIT
. "$jqd_before_each" </dev/null >&2
jqd_code=$?
if [ "$jqd_code" -ne 0 ]; then exit "$jqd_code"; fi
. "$jqd_body"
