# unpack_npm SUITE ROOT LIBRARIES NAME@VERSION...
# Unpacks packages of npm below ROOT. npm checks the hashes. Nothing is written outside of ROOT. Needs no root.
# Without LIBRARIES that is one package, whose files lie in ROOT itself. Of what its own installation would do, the links
# are laid that a package of npm cannot have. With LIBRARIES there is a folder node_modules, with what the packages need in
# the versions of the day in SUITE, npm-2026-11-01 say. The packages' own scripts do not run.
set -euo pipefail
umask 022 # who starts the programs may be another user
suite=$1 root=$2 libraries=$3; shift 3
rm -rf "$root"; mkdir -p "$root"; cd "$root"
if [ "$libraries" = true ]; then
	# Without --prefix npm would look for a project further up.
	npm install --loglevel=error --cache "$root/cache" --prefix "$root" --before "${suite#npm-}" --ignore-scripts \
		--no-package-lock --no-audit --no-fund "$@"
else
	npm pack --loglevel=error --cache "$root/cache" "$@" >name
	tar -xzf "$(cat name)" --strip-components=1 --no-same-owner
	node scripts/hydrate-symlinks.js
	rm -f "$(cat name)" name
fi
rm -rf cache
