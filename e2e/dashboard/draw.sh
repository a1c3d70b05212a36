#!/usr/bin/env bash
# draw.sh: a picture of what the dashboard shows, from bin/dashboard.json (e2e/alerts/evaluate), by a browser without a window.
#
#   e2e/dashboard/draw.sh PICTURE.png
set -euo pipefail
picture=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

width=1200 cell=30 above=58 # pixels: of the page, of a row of the grid with its gap, of header and margins (page.css)
page=bin/dashboard
npm --prefix e2e/dashboard ci --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null
rm -rf "$page"
mkdir -p "$page"
cp e2e/dashboard/page.* e2e/dashboard/node_modules/uplot/dist/{uPlot.iife.min.js,uPlot.min.css} "$page"
{ printf 'const dashboard = '; cat bin/dashboard.json; } >"$page/data.js"
rows=$(node -p 'Math.max(...require("./bin/dashboard.json").panels.map(p => p.gridPos.y + p.gridPos.h))')
chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=5000 --enable-logging=stderr \
	--window-size="$width,$((rows * cell + above))" --screenshot="$picture" "file://$PWD/$page/page.html" 2>"$page/browser.log"
if grep 'CONSOLE.*Uncaught' "$page/browser.log"; then
	exit 1
fi
echo "dashboard: $picture, $(stat -c %s "$picture") bytes"
