# An agent in shell: one line of JSON in, one line of JSON out. (It takes words without quotation marks; a shell has no
# JSON. `speaks = "lines"` spares a script all of it: see `count` in nuncio.toml.)
read -r input
text=$(printf '%s' "$input" | sed -n 's/.*"text":"\([^"]*\)","data".*/\1/p' | tr '[:lower:]' '[:upper:]')
echo "shouting" >&2
printf '{"type":"done","text":"%s!"}\n' "$text"
