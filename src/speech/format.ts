import { extname } from 'node:path';
import { usageError } from '../errors.ts';

/** How speech is asked for, and how it is written down. */
export interface SpeechFormat {
  /** As the person names it: `mp3`, `wav`, `pcm`, `ogg_opus`, or a word that mgw does not know. */
  name: string;
  /** `audio_params.format` as it goes out (specification 2.6). */
  wire: string;
  mime: string;
  /** True where PCM is asked for and one WAV header is written before it. */
  wav: boolean;
}

const mimes: Record<string, string> = {
  mp3: 'audio/mpeg',
  wav: 'audio/wav',
  pcm: 'audio/L16',
  ogg_opus: 'audio/ogg',
};

const byExtension: Record<string, string> = {
  '.mp3': 'mp3',
  '.wav': 'wav',
  '.pcm': 'pcm',
  '.raw': 'pcm',
  '.ogg': 'ogg_opus',
  '.oga': 'ogg_opus',
  '.opus': 'ogg_opus',
};

const otherAudio = new Set(['.aac', '.aif', '.aiff', '.amr', '.flac', '.m4a', '.mka', '.webm', '.wma']);

/**
 * A format by its name. Real services repeat the WAV header in every fragment, so that for `wav` PCM is asked
 * for. A name that is not known goes out as it is, since the specification leaves the values open (2.6).
 */
export function speechFormat(name: string): SpeechFormat {
  const wav = name === 'wav';
  return { name, wire: wav ? 'pcm' : name, mime: mimes[name] ?? 'application/octet-stream', wav };
}

/**
 * The format of an output: the one that is named, else that of the file's extension, else the usual one.
 * @throws MgwError('usage') where the extension is one of audio that is not among the known formats.
 */
export function formatFor(
  named: string | undefined,
  output: string | undefined,
  usual = 'mp3',
): SpeechFormat {
  if (named !== undefined) return speechFormat(named);
  const extension = extname(output ?? '').toLowerCase();
  if (otherAudio.has(extension))
    throw usageError(
      `--output: no known format has the extension ${extension}; use .mp3, .wav, .pcm, .ogg or .opus, or name one by --format.`,
    );
  return speechFormat(byExtension[extension] ?? usual);
}
