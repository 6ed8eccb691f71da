import { expect, it } from 'vitest';
import { plain, withStates, type Paint } from '../../../src/cli/output/human.ts';

const marked: Paint = (style, text) => `<${style}>${text}</>`;

it("a job's state is coloured in a table, in a two-line display and in a single line", () => {
  const lines = [
    'id                  protocol  state      prompt',
    'job_1m81m4gdz54mt5  c         unknown    it failed to sail',
    'job_1m81m4gdz54mt5  tts       succeeded  -',
    'job_1m81m4gdz54mt5 running (IN_PROGRESS) 40%',
    'job_1m81m4gdz54mt5  failed',
    'a job that has failed',
    'job_1m81m4gdz54mt5  c         runningly',
  ];
  expect(withStates(lines.join('\n'), marked).split('\n')).toEqual([
    lines[0],
    'job_1m81m4gdz54mt5  c         <yellow>unknown</>    it failed to sail',
    'job_1m81m4gdz54mt5  tts       <green>succeeded</>  -',
    'job_1m81m4gdz54mt5 <cyan>running</> (IN_PROGRESS) 40%',
    'job_1m81m4gdz54mt5  <red>failed</>',
    ...lines.slice(5),
  ]);
  expect(withStates(lines.join('\n'), plain)).toBe(lines.join('\n'));
});
