"""The style of the page that `quality report --html` writes."""

CSS = """
:root{color-scheme:light dark;--page:#fcfcfb;--card:#ffffff;--ink:#1b1c1e;--soft:#5c6066;--rule:#dcdee1;--line:#1f63c4;
--band:#1f63c41f;--alarm:#b3261e;--good:#1d7440;--warn:#8a5a00}
@media (prefers-color-scheme:dark){:root{--page:#141517;--card:#1d1f22;--ink:#eceef0;--soft:#a3a8af;--rule:#373b40;
--line:#82b1ff;--band:#82b1ff29;--alarm:#ff8f86;--good:#7dd19a;--warn:#f0c060}}
*{box-sizing:border-box}
body{margin:0 auto;padding:16px;max-width:1120px;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;line-height:1.25;margin:8px 0 4px}
h2{font-size:1.15rem;margin:36px 0 8px;padding-top:12px;border-top:1px solid var(--rule)}
h3{font-size:1rem;margin:0 0 4px}section>h3{margin:22px 0 8px}
p{margin:4px 0 10px;max-width:70ch}
.soft,figcaption,.note{color:var(--soft);font-size:.875rem}
.state{font-size:1.05rem;border-left:5px solid var(--soft);padding:8px 12px;background:var(--card);margin:12px 0}
.state.good{border-color:var(--good)}.state.bad{border-color:var(--alarm)}.state.warn{border-color:var(--warn)}
.state b{display:block}
.good b{color:var(--good)}.bad b{color:var(--alarm)}.warn b{color:var(--warn)}
.many{display:grid;gap:12px;grid-template-columns:repeat(auto-fill,minmax(min(100%,310px),1fr))}
figure,article{margin:0;padding:12px;background:var(--card);border:1px solid var(--rule);border-radius:8px;min-width:0}
article{margin-bottom:12px}article p:last-child{margin-bottom:0}
figure.worse{border-color:var(--alarm)}
ul{margin:4px 0 10px;padding-left:20px}
code{font:.875em ui-monospace,Menlo,Consolas,monospace}
table{border-collapse:collapse;width:100%;max-width:560px;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:5px 4px;border-bottom:1px solid var(--rule);text-align:right;font-weight:400;vertical-align:top}
th:first-child,td:first-child{text-align:left;padding-left:0}
thead th{color:var(--soft);font-size:.8rem}
thead th,td:not(:first-child){overflow-wrap:normal}
svg{display:block;width:100%;height:auto;margin:6px 0;max-width:420px}
svg text{font-size:11px;fill:var(--soft)}
svg .end{text-anchor:end}svg .mid{text-anchor:middle}
.grid{stroke:var(--rule);stroke-width:1}.base{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:5 3}
.band{fill:var(--band)}.line{fill:none;stroke:var(--line);stroke-width:2;stroke-linejoin:round}
.point{fill:var(--line);stroke:var(--card);stroke-width:1}.undone{fill:var(--card);stroke:var(--line);stroke-width:1.5}
.alarm{fill:var(--alarm)}svg .alarmed{fill:var(--alarm);font-weight:600}
.reach{stroke:var(--line);stroke-width:3;stroke-linecap:round}.before .reach{stroke:var(--soft)}
.before .point{fill:var(--soft)}
footer{margin-top:36px;padding-top:12px;border-top:1px solid var(--rule)}
"""
