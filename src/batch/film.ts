import { usageError } from '../errors.ts';
import { encode, probe, type Probe, type Stream } from '../flows/ffmpeg.ts';
import type { JobFile } from '../job.ts';
import { printableLine } from '../printable.ts';

/** A video or audio file in a film. */
export interface Track {
  /** The id of the row that made the file. */
  id: string;
  /** The absolute path, or the URL of an object that has not been downloaded. */
  path: string;
  file: JobFile;
  /** Input options for ffmpeg, if the content does not determine the format. */
  input?: string[];
}

/** A video in a film, and the speech tracks laid over it, in order. */
export interface Clip extends Track {
  speech: Track[];
}

/** A plan for making a film. */
export interface Film {
  /** The arguments for ffmpeg, without the output file. */
  args: string[];
  /** The standard input for ffmpeg. */
  list: string;
  /** The film's duration, in seconds. */
  seconds: number;
  /** The reason why the videos must be re-encoded; absent if they are copied. */
  difference?: string | undefined;
  /** Notes about speech that is longer than its clip. */
  notes: string[];
}

interface Scene extends Clip, Probe {
  video: Stream;
  /** The clip's start time in the film, in seconds. */
  start: number;
}

/** An audio track to mix into the film. */
interface OverlaidTrack extends Track {
  /** The track's start time in the film, in seconds. */
  at: number;
}

const audioFormat = 'aresample=48000:async=1,aformat=sample_fmts=fltp:channel_layouts=stereo';
const silence = 'anullsrc=r=48000:cl=stereo';
const toAac = ['-c:a', 'aac', '-b:a', '192k'];
const toH264 = ['-c:v', 'libx264', '-crf', '18'];

/**
 * Plans a film. The clips are copied if their parameters match, or else re-encoded to the size of the first clip.
 * @throws MgwError('usage') if ffmpeg is not installed or cannot read a file.
 */
export async function planFilm(clips: readonly Clip[], signal: AbortSignal): Promise<Film> {
  const probes: (Probe & { video: Stream })[] = [];
  for (const { path } of clips) {
    const { video, ...found } = await probe(path, [`file:${path}`], signal);
    if (video === undefined) throw usageError(`${printableLine(path, 200)} has no video stream.`);
    probes.push({ ...found, video });
  }
  const difference = differenceOf(clips, probes);
  let seconds = 0;
  const scenes = clips.map((clip, index): Scene => {
    const probed = probes[index] as Probe & { video: Stream };
    // A copied clip keeps audio that is longer than its video. A re-encoded clip ends with its video.
    const length =
      difference === undefined ? probed.seconds : Number(probed.video['duration'] ?? probed.seconds);
    const start = seconds;
    seconds += length;
    return { ...clip, ...probed, seconds: length, start };
  });
  const { overlays, notes } = await overlaySpeech(scenes, signal);
  const commands =
    difference === undefined ? copyClips(scenes, overlays, seconds) : encodeClips(scenes, overlays, seconds);
  return { list: '', ...commands, seconds, difference, notes };
}

/**
 * Makes a film at the given path. Overwrites an existing file.
 * @throws MgwError('usage') if ffmpeg fails or the film's duration differs from that of the clips.
 */
export async function makeFilm(
  { args, list, seconds }: Film,
  path: string,
  signal: AbortSignal,
): Promise<void> {
  await encode(path, args, signal, list);
  // ffmpeg may skip a file that it cannot read and still report success.
  const result = await probe(path, ['-f', 'mp4', `file:${path}`], signal);
  if (Math.abs(result.seconds - seconds) > 0.5 + seconds / 50)
    throw usageError(
      `ffmpeg made ${result.seconds.toFixed(1)} s of video, but the clips last ${seconds.toFixed(1)} s in total. No file was written.`,
    );
}

const videoProperties = [
  'codec_name',
  'width',
  'height',
  'r_frame_rate',
  'pix_fmt',
  'sample_aspect_ratio',
  'codec_tag_string',
  'time_base',
  'extradata_hash',
  'side_data_list',
];
const audioProperties = ['codec_name', 'sample_rate', 'channels', 'channel_layout', 'extradata_hash'];

function differenceOf(clips: readonly Clip[], probes: readonly Probe[]): string | undefined {
  const [first] = probes;
  for (const [index, each] of probes.entries()) {
    const id = printableLine(clips[index]?.id ?? '', 100);
    const prefix = `${id} differs from ${printableLine(clips[0]?.id ?? '', 100)}`;
    if ((each.audio === undefined) !== (first?.audio === undefined))
      return `${prefix}: only one of the clips has audio`;
    const property =
      videoProperties.find((name) => !isSame(each.video?.[name], first?.video?.[name])) ??
      audioProperties.find((name) => !isSame(each.audio?.[name], first?.audio?.[name]));
    if (property !== undefined) return `${prefix} in ${property}`;
  }
  return undefined;
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

async function overlaySpeech(
  scenes: readonly Scene[],
  signal: AbortSignal,
): Promise<{ overlays: OverlaidTrack[]; notes: string[] }> {
  const overlays: OverlaidTrack[] = [];
  const notes: string[] = [];
  for (const { id, speech, start, seconds } of scenes) {
    let nextStart = start;
    for (const track of speech) {
      overlays.push({ ...track, at: nextStart });
      nextStart += (await probe(track.path, inputOf(track), signal)).seconds;
      const excess = nextStart - start - seconds;
      if (excess > 0.05)
        notes.push(
          `The speech ${printableLine(track.id, 100)} ends ${excess.toFixed(1)} s after its clip ${printableLine(id, 100)}.`,
        );
    }
  }
  return { overlays, notes };
}

function inputOf({ path, input = [] }: Track): string[] {
  return [...input, '-i', `file:${path}`];
}

// Without `-xerror`, because the audio of a clip may overlap that of the next by a packet, which ffmpeg corrects.
function copyClips(
  scenes: readonly Scene[],
  overlays: readonly OverlaidTrack[],
  seconds: number,
): Pick<Film, 'args' | 'list'> {
  const list = scenes.map(({ path }) => `file 'file:${path.replaceAll("'", "'\\''")}'\n`).join('');
  const input = ['-f', 'concat', '-safe', '0', '-protocol_whitelist', 'file,pipe', '-i', 'pipe:0'];
  if (overlays.length === 0)
    return { list, args: [...input, '-map', '0:v:0', '-map', '0:a:0?', '-c', 'copy'] };
  const clipAudio = scenes[0]?.audio === undefined ? silence : `[0:a:0]${audioFormat},apad`;
  const filters = [`${clipAudio},atrim=duration=${formatSeconds(seconds)}[own]`, ...mixFilters(overlays, 1)];
  const maps = ['-map', '0:v:0', '-map', '[sound]', '-c:v', 'copy', ...toAac];
  return {
    list,
    args: [...input, ...overlays.flatMap(inputOf), '-filter_complex', filters.join(';'), ...maps],
  };
}

function encodeClips(
  scenes: readonly Scene[],
  overlays: readonly OverlaidTrack[],
  seconds: number,
): Pick<Film, 'args'> {
  const [first] = scenes;
  const even = (name: string): number => 2 * Math.floor(Number(first?.video[name]) / 2);
  const [width, height] = [even('width'), even('height')];
  const fit = `scale=${width}:${height}:force_original_aspect_ratio=decrease,pad=${width}:${height}:-1:-1,setsar=1`;
  const picture = `${fit},fps=${String(first?.video['r_frame_rate'])},format=yuv420p`;
  const hasSound = overlays.length > 0 || scenes.some(({ audio }) => audio !== undefined);
  const filters = scenes.flatMap(({ audio, seconds: length }, index) => {
    const clipAudio = audio === undefined ? silence : `[${index}:a:0]${audioFormat},apad`;
    const sound = `${clipAudio},atrim=duration=${formatSeconds(length)}[a${index}]`;
    return [`[${index}:v:0]${picture}[v${index}]`, ...(hasSound ? [sound] : [])];
  });
  const pads = scenes.map((_, index) => `[v${index}]${hasSound ? `[a${index}]` : ''}`).join('');
  filters.push(`${pads}concat=n=${scenes.length}:v=1:a=${hasSound ? '1[picture][clips]' : '0[picture]'}`);
  if (hasSound) filters.push(`[clips]apad,atrim=duration=${formatSeconds(seconds)}[own]`);
  if (hasSound) filters.push(...mixFilters(overlays, scenes.length));
  const inputs = [...scenes, ...overlays].flatMap(inputOf);
  const maps = ['-map', '[picture]', ...(hasSound ? ['-map', '[sound]', ...toAac] : []), ...toH264];
  return { args: ['-xerror', ...inputs, '-filter_complex', filters.join(';'), ...maps] };
}

// The film is as long as its video. Longer audio is truncated.
function mixFilters(overlays: readonly OverlaidTrack[], firstInput: number): string[] {
  const delayed = overlays.map(
    ({ at }, index) =>
      `[${firstInput + index}:a:0]${audioFormat},adelay=${Math.round(at * 1000)}:all=1[s${index}]`,
  );
  const pads = overlays.map((_, index) => `[s${index}]`).join('');
  const mix = `amix=inputs=${overlays.length + 1}:duration=first:normalize=0,alimiter=level=disabled`;
  return [...delayed, `[own]${pads}${mix}[sound]`];
}

function formatSeconds(seconds: number): string {
  return seconds.toFixed(6);
}
