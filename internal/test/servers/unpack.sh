# unpack SUITE ROOT LIBRARIES PACKAGE...
# Unpacks Debian packages of SUITE, and if LIBRARIES is true the libraries that they need, below ROOT, and writes ROOT/run,
# which starts a program of that tree on the tree's own C library. The system's apt and dpkg are not touched: the state is
# private, and the status is empty, so that even libc6 comes from SUITE. Needs no root.
set -euo pipefail
umask 022 # who starts the programs may be another user
suite=$1 root=$2 libraries=$3; shift 3
rm -rf "$root"; mkdir -p "$root/debs" "$root/usr/"{bin,sbin,lib,lib64}
state=$(mktemp -d); trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/none.d"; : >"$state/status"
# The mirror is the one that this machine's own apt uses for its release.
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | awk -v r="$codename" '$2==r {print $1; exit}')
[ -n "$mirror" ] || { echo "apt has no mirror for $codename: run apt-get update" >&2; exit 1; }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || { echo "$keyring is missing: install debian-archive-keyring" >&2; exit 1; }
echo "deb [signed-by=$keyring] $mirror $suite main" >"$state/sources.list"
cat >"$state/apt.conf" <<C
Dir::State "$state"; Dir::State::Lists "$state/lists"; Dir::State::status "$state/status";
Dir::Cache "$state/cache"; Dir::Etc::sourcelist "$state/sources.list";
Dir::Etc::sourceparts "$state/none.d"; Dir::Etc::preferencesparts "$state/none.d";
Dir::Etc::preferences "/nonexistent"; Dir::Etc::main "/nonexistent"; Dir::Etc::parts "$state/none.d";
Acquire::Languages "none"; Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "3"; APT::Sandbox::User "root"; APT::Install-Recommends "false";
C
# The machine's own settings for fetching apply: proxies, and whether an old view of the archive is accepted.
apt-config dump --no-empty | grep -E '^Acquire::(Check-|https?::|[a-z]+::Proxy)' >>"$state/apt.conf" || :
export APT_CONFIG=$state/apt.conf
apt-get -qq update
named=" $* "
apt-get -s install "$@" | awk '/^Inst/{print $2}' | while read -r p; do
  case $named in *" $p "*) echo "$p"; continue;; esac
  "$libraries" || continue
  case $p in *perl*|*-common|libpam-*|libdebconf*|libgdbm*|libdb5*|libc-gconv*|libsemanage*|libllvm*|libz3*) ;;
             lib*|zlib1g) echo "$p";; esac
done >"$state/list"
(cd "$root/debs" && xargs apt-get -qq download <"$state/list") # apt checks the hashes
# One merged tree, whether a package says lib/ or usr/lib/.
for d in bin sbin lib lib64; do ln -sfn usr/$d "$root/$d"; done
for deb in "$root"/debs/*.deb; do
  dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$root"
done
rm -rf "$root/debs"
cat >"$root/run" <<'R'
#!/bin/bash
# run PROGRAM ARGS...: PROGRAM is a path inside this tree
r=$(dirname "$(realpath "$0")"); p=$1; shift
exec "$r"/usr/lib/*-linux-gnu*/ld-linux-*.so.* --library-path "$(echo "$r"/usr/lib/*-linux-gnu*):$r/usr/lib/mysql-router" "$r/$p" "$@"
R
printf '#!/bin/bash\nexec "$(dirname "$(realpath "$0")")/run" usr/sbin/mariadbd "$@"\n' >"$root/mariadbd" # for mariadb-install-db
chmod 755 "$root" "$root/run" "$root/mariadbd"
for bin in "$root"/usr/lib/postgresql/*/bin; do # initdb starts "postgres" itself
  [ -e "$bin/postgres" ] || continue
  mv "$bin/postgres" "$bin/postgres.bin"
  printf '#!/bin/bash\nb=$(dirname "$(realpath "$0")")\nexec "$b/../../../../../run" "${b#"$(realpath "$b/../../../../..")"/}/postgres.bin" "$@"\n' >"$bin/postgres"
  chmod 755 "$bin/postgres"
done
