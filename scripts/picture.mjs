// Draws docs/run.svg, the picture of a real run in the README. Runs mgw in a separate terminal (util-linux's `script`),
// interprets the output, and draws the final screen for light and dark mode.
//
//   node scripts/picture.mjs
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const columns = 100;
const commands = [
  'mgw video c submit "a paper boat at sea" -m vendor-h3-mini -d 5 -o boat.mp4',
  '# the response to the next submission is lost',
  'mgw video c submit "a whale" -m vendor-h3-mini -d 5 -o whale.mp4',
  '# once more: it is not sent again, because it may have been charged',
  'mgw video c submit "a whale" -m vendor-h3-mini -d 5 -o whale.mp4',
  'mgw jobs ls',
];

const repository = fileURLToPath(new URL('../', import.meta.url));
const home = mkdtempSync(join(tmpdir(), 'mgw-picture-'));

/** Starts a sandbox that loses the response to one submission. Returns the sandbox's address once it listens. */
async function losingSandbox() {
  const server = spawn('mgw', ['sandbox', 'start', '--port', '0', '--fault', 'submit-reply-lost'], {
    env: env(),
  });
  let output = '';
  for await (const chunk of server.stdout) {
    output += chunk;
    const [url] = /http:\/\/127\.0\.0\.1:\d+/.exec(output) ?? [];
    if (url !== undefined && output.includes('\n')) return { url, close: () => server.kill() };
  }
  throw new Error('the sandbox did not start');
}

function env(sandbox = '1') {
  return {
    HOME: home,
    PATH: `${join(home, 'bin')}:${process.env.PATH}`,
    TERM: 'xterm',
    MGW_SANDBOX: sandbox,
  };
}

/** Runs a command on a terminal, and returns the output. */
function onTerminal(command, sandbox) {
  writeFileSync(join(home, 'run.sh'), `stty cols ${columns} rows 40\n${command}\n`);
  const result = spawnSync('script', ['-qec', 'sh run.sh', '/dev/null'], {
    cwd: home,
    env: env(sandbox),
    encoding: 'utf8',
  });
  if (result.error) throw result.error;
  return result.stdout;
}

/** Returns a screen's lines after the given output, each as a list of cells `{ text, style }`. */
function screenAfter(output) {
  const lines = [[]];
  let [row, column, style] = [0, 0, ''];
  for (const [token, csi, final] of output.matchAll(/\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|[^]/gu)) {
    const count = Number(csi) || 1;
    if (final === 'A') row = Math.max(0, row - count);
    else if (final === 'G') column = count - 1;
    else if (final === 'K') lines[row].length = Math.min(lines[row].length, csi === '2' ? 0 : column);
    else if (final === 'm') style = styleOf(csi, style);
    else if (token === '\r') column = 0;
    else if (token === '\n') lines[(row += 1)] ??= [];
    else if (token >= ' ') {
      if (column >= columns) [row, column] = [row + 1, 0];
      const line = (lines[row] ??= []);
      while (line.length < column) line.push({ text: ' ', style: '' });
      line[column] = { text: token, style };
      column += 1;
    }
  }
  return lines;
}

const styles = { 1: 'bold', 2: 'dim', 31: 'red', 32: 'green', 33: 'yellow', 36: 'cyan', 90: 'dim' };

function styleOf(codes, before) {
  return codes
    .split(';')
    .reduce((style, code) => styles[code] ?? (/^(0|22|39)?$/.test(code) ? '' : style), before);
}

function escaped(text) {
  return text.replace(/[&<>]/g, (character) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[character]);
}

function lineOf(cells) {
  const runs = [];
  for (const { text, style } of cells) {
    const last = runs.at(-1);
    if (last?.style === style) last.text += text;
    else runs.push({ text, style });
  }
  return runs
    .map(({ text, style }) => (style ? `<tspan class="${style}">${escaped(text)}</tspan>` : escaped(text)))
    .join('');
}

function styled(line, style) {
  return Array.from(line, (text) => ({ text, style }));
}

function picture(lines) {
  const [cell, height, margin] = [8.4, 20, 20];
  const width = Math.ceil(columns * cell) + 2 * margin;
  const full = lines.length * height + 2 * margin;
  const rows = lines.map(
    (line, index) => `<text x="${margin}" y="${margin + 14 + index * height}">${lineOf(line)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${full}" width="${width}" height="${full}" role="img" aria-label="mgw at a terminal: a video is made; a submission whose response is lost is not sent again">
<style>
  rect { fill: #f6f8fa; stroke: #d0d7de }
  text { fill: #1f2328; font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace; white-space: pre }
  .bold { font-weight: 600 } .dim { fill: #59636e } .red { fill: #b42318 } .green { fill: #1a7f37 } .yellow { fill: #7d4e00 } .cyan { fill: #0a6c86 }
  @media (prefers-color-scheme: dark) {
    rect { fill: #0d1117; stroke: #3d444d }
    text { fill: #e6edf3 } .dim { fill: #9198a1 } .red { fill: #ff7b72 } .green { fill: #56d364 } .yellow { fill: #e3b341 } .cyan { fill: #76e3ea }
  }
</style>
<rect x="0.5" y="0.5" width="${width - 1}" height="${full - 1}" rx="8"/>
${rows.join('\n')}
</svg>
`;
}

try {
  mkdirSync(join(home, 'bin'));
  writeFileSync(
    join(home, 'bin', 'mgw'),
    `#!/bin/sh\nexec '${process.execPath}' '${repository}bin/mgw.js' "$@"\n`,
  );
  chmodSync(join(home, 'bin', 'mgw'), 0o755);
  const losing = await losingSandbox();
  const lines = commands.flatMap((command, index) => {
    const blank = index === 0 || commands[index - 1].startsWith('#') ? [] : [[]];
    if (command.startsWith('#')) return [...blank, styled(command, 'dim')];
    const screen = screenAfter(
      onTerminal(command, index === 0 ? '1' : losing.url).replaceAll(home, '/home/ada'),
    );
    while (screen.at(-1)?.length === 0) screen.pop();
    return [...blank, styled(`$ ${command}`, 'bold'), ...screen];
  });
  losing.close();
  writeFileSync(join(repository, 'docs', 'run.svg'), picture(lines));
} finally {
  rmSync(home, { recursive: true, force: true });
}
