import { at, type Json, type JsonObject } from '../../json.ts';
import type { Quantity } from '../protocol.ts';

/** What a body asks for at most. A length that is left out is the model's to choose (specification 2.3). */
export function quantityOf(body: JsonObject): Quantity {
  const seconds = at(body, 'OutputConfig.Duration');
  const isLengthOpen = seconds === undefined;
  return {
    videos: 1,
    isLengthOpen,
    ...(typeof seconds === 'number' && { seconds }),
    referenceImages: referenceImagesIn(body['FileInfos']),
    body,
  };
}

// Only a first frame is known to be none: without a Usage, the gateway decides (specification 2.3).
function referenceImagesIn(files: Json | undefined): number {
  if (!Array.isArray(files)) return 0;
  return files.filter((file) => at(file, 'Usage') !== 'FirstFrame').length;
}
