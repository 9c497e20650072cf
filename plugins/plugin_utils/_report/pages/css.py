# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the style sheet of the pages: light, dark, phone and print. No font, image or script is fetched.

Every pair of text and ground meets WCAG 2.2 AA (4.5:1); the unit tests compute it from the variables below.
"""

from __future__ import annotations

LIGHT = {
    "paper": "#fcfbf8",
    "soft": "#f3f1eb",
    "ink": "#1c2024",
    "muted": "#5b646d",
    "rule": "#d8d4ca",
    "accent": "#0b5d7a",
    "ok": "#1d6b40",
    "warn": "#855500",
    "bad": "#b0261d",
    "heat-0": "#eef0ee",
    "heat-1": "#d9e5e8",
    "heat-2": "#b9d3dc",
    "heat-3": "#90bbc9",
    "heat-4": "#639fb3",
    "heat-5": "#2c7690",
    "heat-6": "#0b5d7a",
    "series-0": "#0b5d7a",
    "series-1": "#b3541e",
    "series-2": "#4a7a12",
    "series-3": "#7a4fa3",
    "series-4": "#a3366b",
    "series-5": "#806000",
    "series-6": "#1f6f6b",
    "series-7": "#4a5058",
}
DARK = {
    "paper": "#15181b",
    "soft": "#1d2226",
    "ink": "#e7e5df",
    "muted": "#a0a9b1",
    "rule": "#353c42",
    "accent": "#72c3dc",
    "ok": "#7fcf9f",
    "warn": "#e0b252",
    "bad": "#f28b82",
    "heat-0": "#1f2529",
    "heat-1": "#21343b",
    "heat-2": "#264650",
    "heat-3": "#2c5a68",
    "heat-4": "#336979",
    "heat-5": "#53a0b8",
    "heat-6": "#72c3dc",
    "series-0": "#72c3dc",
    "series-1": "#f0a06c",
    "series-2": "#a5d06a",
    "series-3": "#c3a2ec",
    "series-4": "#ee92bd",
    "series-5": "#dcbf58",
    "series-6": "#6fcfc6",
    "series-7": "#b4bcc4",
}

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;color-scheme:light dark}
body{margin:0;background:var(--paper);color:var(--ink);font:400 15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1096px;margin:0 auto;padding:40px 24px 64px}
h1,h2,.word{font-family:"Iowan Old Style","Palatino Linotype",Palatino,Charter,Cambria,Georgia,serif;font-weight:600;
line-height:1.2;text-wrap:balance}
h1{font-size:34px;margin:2px 0 0;overflow-wrap:anywhere}
h2{font-size:19px;margin:0}
h3{font-size:15px;font-weight:600;margin:28px 0 6px}
p{margin:0 0 10px;max-width:68ch;overflow-wrap:anywhere}
.kicker,.caveat,.lead,figcaption,caption,dt,th,footer,.note{color:var(--muted)}
.kicker{font-size:13px;letter-spacing:.02em;margin:0;max-width:none}.when{white-space:nowrap}
.id,pre.command code{user-select:all;-webkit-user-select:all}
a{color:var(--accent)}
.log{margin:0 0 30px}.log pre{white-space:pre-wrap;overflow-wrap:anywhere}.log p{margin:0 0 6px}
pre.command+pre.command{margin-top:8px}
.terms+pre.command{margin-top:14px}.extras{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));column-gap:24px}
.extras figure{margin-bottom:14px;max-width:360px}
.extras figure svg.wide{display:none}.extras figure svg.narrow{display:block}
.caveat{margin:8px 0 0;font-size:14px}
.verdict{margin:28px 0 30px;padding:2px 0 4px 20px;border-left:4px solid var(--tone)}
.word{font-size:25px;color:var(--tone);margin:0 0 4px}
.word span{font-family:system-ui,sans-serif;font-size:.8em;margin-right:.45em}
.verdict p:last-child{font-size:18px;line-height:1.45;margin:0}
.t-ok{--tone:var(--ok)}.t-warn{--tone:var(--warn)}.t-bad{--tone:var(--bad)}
.t-live{--tone:var(--accent)}.t-calm{--tone:var(--muted)}
.mark{color:var(--tone);font-weight:600;white-space:nowrap}
dl,dd{margin:0}
.figures{display:grid;grid-template-columns:repeat(4,1fr);border-top:1px solid var(--rule)}
.figures div{padding:12px 16px 12px 0;border-bottom:1px solid var(--rule)}
.figures dt{font-size:13px}.figures dd{font-size:21px;line-height:1.35;overflow-wrap:anywhere}
.figures small{font-size:13px;color:var(--muted);white-space:nowrap}
section{display:grid;grid-template-columns:184px minmax(0,1fr);column-gap:24px;margin-top:40px;padding-top:14px;
border-top:1px solid var(--rule)}
section>*{grid-column:2}section>h2{grid-column:1;grid-row:1/span 40}
section>:last-child,section>:last-child table{margin-bottom:0}ul.steps{list-style:none;padding:0}ul.steps li{padding:0}
.figures+section{border-top:0;margin-top:22px}
.terms{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));column-gap:32px}
.terms div{display:grid;grid-template-columns:136px minmax(0,1fr);padding:3px 0}
.terms dd{overflow-wrap:anywhere}
.steps{margin:0;padding-left:20px}.steps li{margin:0 0 14px;padding-left:4px}.steps p{margin:0 0 6px}
code,pre{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px}
pre{margin:0;overflow-x:auto;background:var(--soft);padding:9px 12px;border-radius:3px;line-height:1.5}
pre.command{white-space:pre-wrap;overflow-wrap:anywhere}
figure{margin:4px 0 26px}
figure svg{display:block;width:100%;height:auto;overflow:visible;font-family:inherit}
figure svg *{stroke-linejoin:round;stroke-linecap:butt}
figure svg.narrow{display:none}
figcaption{font-size:13.5px;margin-top:6px;max-width:76ch}
.key{white-space:nowrap}.key b{font-weight:600;color:var(--k,var(--accent))}
table{border-collapse:collapse;width:100%;font-size:14px;margin:0 0 22px}
caption{text-align:left;font-size:13.5px;padding:0 0 6px}
th{font-weight:500;font-size:13px;text-align:left;vertical-align:bottom;border-bottom:1px solid var(--muted)}
th,td{padding:5px 14px 5px 0}td{vertical-align:top;border-bottom:1px solid var(--rule);overflow-wrap:anywhere}

th:last-child,td:last-child{padding-right:0}
.num{text-align:right;white-space:nowrap}
details{margin:0 0 22px}summary{cursor:pointer;color:var(--accent)}details[open] summary{margin-bottom:10px}
.account{display:flex;gap:2px;margin:4px 0 14px}
.account span{flex-basis:0;height:22px;background:var(--heat-2);border:1px solid var(--rule)}
.account .useful{background:var(--accent);border-color:var(--accent)}
ul.note{margin:0;padding-left:18px}
footer{margin-top:48px;padding-top:14px;border-top:1px solid var(--rule);font-size:13px}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
"""
_MEDIUM = """
section{display:block}section>h2{margin-bottom:10px}
"""
_NARROW = """
main{padding:22px 16px 48px}h1{font-size:27px}.verdict{padding-left:14px;margin:22px 0}
.word{font-size:23px}.verdict p:last-child{font-size:16.5px}
.figures{grid-template-columns:repeat(2,1fr)}.figures dd{font-size:18.5px}
.terms{grid-template-columns:1fr}.terms div{grid-template-columns:118px minmax(0,1fr);column-gap:8px}
figure svg.wide{display:none}figure svg.narrow{display:block}
table:not(.compact),table:not(.compact) :is(tbody,tr,td){display:block;width:100%}caption{display:block}
table:not(.compact) thead{display:none}
table:not(.compact) tr{border-top:1px solid var(--muted);padding:7px 0;display:flex;flex-wrap:wrap;column-gap:16px;
align-items:baseline}
table:not(.compact) td{border:0;padding:1px 0;width:auto}table:not(.compact) td.none{display:none}
table:not(.compact) td::before{content:attr(data-label) " ";color:var(--muted)}
table:not(.compact) .num{text-align:left;white-space:normal}
table.list td::before{content:none!important}table.list td:last-child{color:var(--muted);flex-basis:100%}
table.list tr{column-gap:8px}table.list td:nth-child(2){order:-1}
.extras{grid-template-columns:1fr}.extras figure{max-width:none}
.compact caption{display:table-caption}.compact th,.compact td{padding-right:8px}
"""
_PRINT = """
@page{margin:9mm 11mm}body{font-size:10.5pt;background:none}main{max-width:none;padding:0}
section{display:block;margin-top:22px}section>h2{margin-bottom:8px}h2,h3,caption{break-after:avoid}
figure,tr,.verdict,.figures,.steps li{break-inside:avoid}details:not([open]){display:none}
main,dt,table,th,figcaption,caption,small,.figures small,.caveat,.kicker,footer,p,pre,code,li,summary{font-size:8.2pt;
line-height:1.3}.figures dt{font-size:8.2pt}h1{font-size:17pt}p{max-width:none}.caveat{margin:2px 0}
h2{font-size:12pt}.word{font-size:14pt}.verdict{margin:9px 0}.verdict p:last-child{font-size:10pt}
.figures dd{font-size:12pt}
.figures div{padding:4px 10px 4px 0}.log{margin-bottom:9px}th,td{padding:1px 10px 1px 0}.steps li{margin-bottom:4px}
figure{margin:0 0 4px;max-width:170mm}table,details{margin-bottom:8px}pre{padding:3px 6px}
.steps p,p{margin-bottom:3px}
.pair{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));column-gap:12px}figure svg{max-height:36mm}
.pair figure svg.wide{display:none}.pair figure svg.narrow{display:block;max-height:38mm}footer p{display:inline}
.account,.spent{display:none}
.figures+section{margin-top:4px}table{break-inside:avoid}
.log pre{max-height:calc(8*1.3*8.2pt + 8px);overflow:hidden;display:flex;flex-direction:column-reverse}

section{margin-top:5px;padding-top:3px}section>h2{margin-bottom:2px}footer{margin-top:5px;padding-top:3px}
.extras{grid-template-columns:repeat(3,minmax(0,1fr))}.extras figure{margin-bottom:2px}
.terms div{padding:0}pre.command+pre.command{display:none}
pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid var(--rule)}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
"""


def _variables(values: dict[str, str]) -> str:
    return ":root{" + "".join(f"--{name}:{value};" for name, value in values.items()) + "}"


def style_sheet() -> str:
    """Return the whole style sheet. Dark comes only on a screen: paper is white."""
    return (
        f"{_variables(LIGHT)}{_RULES}"
        f"@media screen and (prefers-color-scheme:dark){{{_variables(DARK)}}}"
        f"@media screen and (max-width:960px){{{_MEDIUM}}}"
        f"@media screen and (max-width:640px){{{_NARROW}}}"
        f"@media print{{{_PRINT}}}"
    )
