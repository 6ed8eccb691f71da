import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

const folders = (process.env['PATH'] ?? '').split(delimiter);

/** Whether ffmpeg and ffprobe are on the PATH. */
export const hasFfmpeg = ['ffmpeg', 'ffprobe'].every((tool) =>
  folders.some((folder) => existsSync(join(folder, tool))),
);

/** Decodes media with all of ffmpeg's checks. Returns ffmpeg's warnings, and its raw output on request. */
export function ffmpeg(
  input: Uint8Array,
  before: string[],
  after: string[],
): { complaints: string; output: Buffer } {
  const strict = ['-v', 'warning', '-xerror', '-err_detect', 'explode', '-threads', '1'];
  const { stdout, stderr } = spawnSync('ffmpeg', [...strict, ...before, '-i', 'pipe:0', ...after, 'pipe:1'], {
    input,
    maxBuffer: 2 ** 28,
  });
  return { complaints: stderr.toString(), output: stdout };
}

/** Returns the given ffprobe fields of a file's first stream. */
export function ffprobe(
  input: Uint8Array,
  fields: string[],
): { complaints: string; stream: Record<string, unknown> } {
  const entries = `stream=${fields.join(',')}`;
  const arguments_ = ['-v', 'warning', '-count_frames', '-show_entries', entries, '-of', 'json', 'pipe:0'];
  const { stdout, stderr } = spawnSync('ffprobe', arguments_, { input });
  const { streams } = JSON.parse(stdout.toString()) as { streams: Record<string, unknown>[] };
  return { complaints: stderr.toString(), stream: streams[0] ?? {} };
}
