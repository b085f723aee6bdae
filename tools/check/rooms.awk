# The rooms of tools/check/rooms, for the awk programs that check dependencies between files: load_rooms() first, then
# room_of(PATH) and allowed(ROOM, PATH).
function load_rooms(    line, name, list) {
    while ((getline line < "tools/check/rooms") > 0) {
        if (line ~ /^ /) { # continues the list of the room above
            may[name] = may[name] line
        }
        if (line !~ /^[a-z].*:/) {
            continue
        }
        name = list = line
        sub(/:.*/, "", name)
        sub(/^[^:]*:/, "", list)
        may[name] = name " " list
    }
    close("tools/check/rooms")
}
function below(path, folder) {
    return index(path, folder "/") == 1
}
# The innermost room that contains the file, or "".
function room_of(path,    name, best) {
    for (name in may) {
        if (below(path, name) && length(name) > length(best)) {
            best = name
        }
    }
    return best
}
function allowed(room, path,    list, n, i) {
    n = split(may[room], list, " ")
    for (i = 1; i <= n; i++) {
        if (below(path, list[i])) {
            return 1
        }
    }
    return 0
}
