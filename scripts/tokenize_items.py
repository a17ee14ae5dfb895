# SPDX-License-Identifier: MIT
"""tokenize_items - makes arrays of pictures and audio for scripts/tokenize, as
the model's own processor in transformers makes them."""

import base64
import io
import math
import os
import wave

from tokenize_input import fail, need, read_json


def opened(source):
    """Returns bytes as a file, and a name as it is."""
    return io.BytesIO(source) if isinstance(source, bytes) else source


def shown(source):
    return "bytes" if isinstance(source, bytes) else source


class Items:
    """What a record has beside its text. Arrays go to a folder;
    without one, no record may have such items. option is that for the folder,
    and the field of pppack's lines."""

    def __init__(self, model, folder):
        self.folder, self.n = folder, 0
        if not folder:
            return
        self.transformers, self.numpy = need("transformers"), need("numpy")
        config = read_json(os.path.join(model, "config.json"))
        inner = config.get("thinker_config")
        self.config = inner if isinstance(inner, dict) else config
        self.token = self.config.get(f"{self.noun}_token_id", self.config.get(
            f"{self.noun}_token_index"))
        if self.token is None:
            fail(f"{model}/config.json: no '{self.noun}_token_id'")
        try:
            self.processor = self.load(model)
            os.makedirs(folder, exist_ok=True)
        except Exception as error:  # The library raises all kinds.
            fail(f"{model}: {error}")

    def write(self, array):
        """Writes an array and returns its name."""
        path = os.path.join(self.folder, f"{self.n:08}.npy")
        self.n += 1
        self.numpy.save(path, self.numpy.ascontiguousarray(array, "<f4"))
        return path

    def sources_of(self, record, messages, folder, where):
        """Returns the sources of a record's items: paths, or bytes. A part of a
        message that has none takes the next of the record's list."""
        values = next(filter(None, map(record.get, self.keys)), [])
        values = list(values) if isinstance(values, list) else [values]
        inline = []
        for part in (part for message in messages
                     if isinstance(message.get("content"), list)
                     for part in message["content"]):
            if part.get("type") in (self.noun, f"{self.noun}_url"):
                own = next(filter(None, map(part.get, (
                    self.noun, f"{self.noun}_url", "url", "path"))), None)
                if own is None and values:
                    own = values.pop(0)
                inline += [] if own is None else [own]
        return [self.source_of(value, folder, where)
                for value in inline + values]

    def source_of(self, value, folder, where):
        if isinstance(value, dict):  # datasets keep both; OpenAI has a url.
            value = next(filter(None, map(value.get, (
                "bytes", "url", "path"))), None)
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            fail(f"{where}: {self.words} must be names of files, data: URLs or"
                 " bytes")
        if value.startswith("data:"):
            try:
                return base64.b64decode(value.partition(",")[2], validate=True)
            except ValueError as error:
                fail(f"{where}: a data: URL is not base64: {error}")
        if value.startswith(("http:", "https:")):
            fail(f"{where}: '{value}': is on the network; give a file")
        return os.path.join(folder, value.removeprefix("file://"))

    def expand(self, line, names, where):
        """Adds items to a line, and repeats the token of each as often as it
        has features."""
        if not self.folder:
            if names:
                fail(f"{where}: has {self.words}; give --{self.option} and a"
                     " folder for them")
            return line
        if (found := line["input_ids"].count(self.token)) != len(names):
            fail(f"{where}: '{found}' tokens for {len(names)} {self.words}")
        saved = [self.save(name, where) for name in names]
        left = iter(saved)
        times = [next(left)[1] if token == self.token else 1
                 for token in line["input_ids"]]
        for key in ("input_ids", "loss_mask"):
            line[key] = [v for v, n in zip(line[key], times) for _ in range(n)]
        return {**line, self.option: [item for item, _ in saved]}


class Pictures(Items):
    option, noun, words = "images", "image", "pictures"
    keys = "images", "image"

    def load(self, model):
        self.image = need("PIL.Image", "pillow").Image
        vision = self.config.get("vision_config")
        self.patch = isinstance(vision, dict) and vision.get("patch_size")
        if not isinstance(self.patch, int) or self.patch < 1:
            fail(f"{model}/config.json: no 'vision_config' with 'patch_size'")
        return self.transformers.AutoImageProcessor.from_pretrained(model)

    def save(self, name, where):
        """Returns an image for pppack, and its features."""
        try:
            picture = self.image.open(opened(name)).convert("RGB")
            made = self.processor(images=[picture], return_tensors="np")
        except Exception as error:
            fail(f"{where}: {shown(name)}: {error}")
        pixels, grid = made["pixel_values"], made.get("image_grid_thw")
        if grid is not None:
            grid = grid[0].tolist()
            features = math.prod(grid) // self.processor.merge_size ** 2
        elif pixels.ndim == 4 and len(pixels) == 1:
            pixels = pixels[0]
            features = math.prod(n // self.patch for n in pixels.shape[1:])
            features += self.config.get(
                "vision_feature_select_strategy") == "full"
        else:
            fail(f"{where}: {shown(name)}: the processor makes several images of it")
        path = self.write(pixels)
        image = path if grid is None else {"pixels": path, "grid": grid}
        return image, features


class Clips(Items):
    """Log-mel spectrograms, as Whisper's feature extractor makes them."""

    option, noun, words = "audio", "audio", "clips of audio"
    keys = "audio", "audios"
    BEHIND = 2  # frames behind a clip that its last row may read

    def load(self, model):
        return self.transformers.WhisperFeatureExtractor.from_pretrained(model)

    def read_wave(self, name):
        """Returns the samples of a .wav file of whole numbers, and how many
        there are each second."""
        with wave.open(opened(name)) as file:
            size, rate = file.getsampwidth(), file.getframerate()
            channels = file.getnchannels()
            data = self.numpy.frombuffer(file.readframes(file.getnframes()),
                                         "u1").reshape(-1, size)
        # The sample is the upper bytes of 32 bits; one of 8 has no sign.
        wide = self.numpy.zeros((len(data), 4), "u1")
        wide[:, 4 - size:] = data if size > 1 else data ^ 128
        samples = wide.view("<i4").reshape(-1, channels) / 2.0 ** 31
        return samples.mean(1), rate

    def samples_of(self, name, where):
        """Returns the samples of a file, of one channel."""
        want = self.processor.sampling_rate
        try:
            if isinstance(name, str) and name.endswith(".npy"):
                samples = self.numpy.load(name, allow_pickle=False)
                rate = want
            else:
                samples, rate = self.read_wave(name)
        except OSError as error:
            fail(f"{where}: {shown(name)}: {error.strerror}")
        except (EOFError, ValueError, wave.Error) as error:
            fail(f"{where}: {shown(name)}: cannot be read:"
                 f" {str(error) or 'it ends too early'}")
        if samples.ndim != 1 or samples.dtype.kind != "f":
            fail(f"{where}: {shown(name)}: must be one row of floating-point samples")
        if rate != want:
            fail(f"{where}: {shown(name)}: has '{rate}' samples a second, but the"
                 f" model takes {want}")
        if len(samples) > self.processor.n_samples:
            fail(f"{where}: {shown(name)}: has '{len(samples)}' samples, but the"
                 f" model takes {self.processor.n_samples}")
        return samples

    def save(self, name, where):
        """Returns a clip for pppack, and its features."""
        samples = self.samples_of(name, where)
        if len(samples) == 0:
            fail(f"{where}: {shown(name)}: has no samples")
        made = self.processor(
            samples, sampling_rate=self.processor.sampling_rate,
            padding="max_length", return_attention_mask=True,
            return_tensors="np")
        frames = int(made["attention_mask"].sum())
        features = (frames + 1) // 2 // 2
        if not features:
            fail(f"{where}: {shown(name)}: '{len(samples)}' samples make no feature")
        spectrum = made["input_features"][0][:, :frames + self.BEHIND]
        return {"features": self.write(spectrum), "frames": frames}, features
