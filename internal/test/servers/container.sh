# Runs a container until the standard input ends: so none is left when the process that wants it
# dies. It prints the address at which a port of the container is reached.
#
#   container.sh ENGINE PORT, then the arguments of ENGINE run
engine=$1 port=$2
shift 2
id=$("$engine" run --detach --rm "$@" </dev/null) || exit
trap '"$engine" rm --force --volumes "$id" >/dev/null' EXIT
address=$("$engine" port "$id" "$port") || exit # of a container that has ended already
echo "$address" | head -n 1
read -r _
