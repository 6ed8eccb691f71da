/**
 * A command in a transcript, which contains what a person sees in a terminal. A line that begins with `$ ` is a
 * command, and the lines up to the next command are its output. Lines that begin with `2> ` are on stderr. `[exit 2]`
 * is the exit code if it is not 0. A line `...` matches any lines. A word in angle brackets, from the list below,
 * matches any value of its kind. Two or more spaces between columns match any such number. A line that begins with
 * `# ` is a comment. Every transcript starts in an empty home.
 */
export interface Step {
  command: string;
  stdout: string[];
  stderr: string[];
  code: number;
}

const fits: Record<string, string> = {
  job: 'job_[0-9a-hjkmnp-tv-z]{14}',
  task: '[\\w-]+(?:/[\\w.-]+)*',
  home: '/\\S+?/mgw-home-\\w+',
  time: '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z',
  day: '\\d{4}-\\d\\d-\\d\\d',
  clock: '\\d\\d:\\d\\d:\\d\\d',
  size: '\\d+(?:\\.\\d)? [kM]?B',
  n: '\\d+',
  hex: '[0-9a-f]+',
  any: '.*',
};

/** Returns a transcript's steps. */
export function readTranscript(text: string): Step[] {
  const steps: Step[] = [];
  for (const line of text.split('\n')) {
    const step = steps.at(-1);
    if (line.startsWith('$ ')) steps.push({ command: line.slice(2), stdout: [], stderr: [], code: 0 });
    else if (line.startsWith('# ') || line === '') continue;
    else if (step === undefined) throw new Error(`a transcript begins with a command, not with: ${line}`);
    else if (/^\[exit \d+\]$/.test(line)) step.code = Number(line.slice(6, -1));
    else if (line.startsWith('2> ')) step.stderr.push(line.slice(3));
    else step.stdout.push(line);
  }
  return steps;
}

/** Returns a pattern that matches the output described by a transcript's lines, without blank lines. */
export function patternOf(lines: readonly string[]): RegExp {
  const parts = lines.map((line) => (line === '...' ? '(?:.*\n)*?' : `${linePattern(line)} *\n`));
  return new RegExp(`^${parts.join('')}$`);
}

function linePattern(line: string): string {
  const escaped = line.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&').replace(/ {2,}/g, ' {2,}');
  return escaped.replace(/<(\w+)>/g, (word, name: string) => fits[name] ?? word);
}

/** Removes blank lines from output, for comparison with a pattern. */
export function withoutBlankLines(text: string): string {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => `${line}\n`)
    .join('');
}
